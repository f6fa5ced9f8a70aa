"""The process of a proof, a child of its supervisor.

FOLDER holds request.json; N.json with the proof of the Nth site, and `stage`, are written there. Each proof is sealed
with a key that is read from standard input before any code of the user runs, so that a file which that code leaves
there is no proof.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.proving.building import Built, rebuild
from fusionkit.identify.proving.calling import one_line
from fusionkit.identify.proving.comparing import Ran, judge_runs
from fusionkit.identify.proving.configurations import FORCED
from fusionkit.identify.proving.masks import MASKED_OPS, mask_parameters
from fusionkit.identify.proving.modules import import_original, import_replaced
from fusionkit.identify.proving.planning import Planned, plan
from fusionkit.identify.proving.proof import Proof, Run, severity
from fusionkit.identify.proving.running import Precision, run_sides
from fusionkit.identify.proving.seals import sealed
from fusionkit.identify.proving.switches import Switches, rewritten_symbol
from fusionkit.identify.proving.traffic import Traffic
from fusionkit.identify.proving.witness import Branches
from fusionkit.identify.reading import read_source
from fusionkit.identify.scan_file import Site
from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.target import current_facade, use_target
from fusionkit.store import read_json, write_json, write_text
from fusionkit.verdict import Verdict

Tell = Callable[[str], None]


def prepare() -> None:
    """What all proofs have in common; it runs nothing of torch that starts a thread, for the process is forked then."""
    torch.set_num_threads(1)
    use_target("cpu")


def prove_folder(folder: Path) -> None:
    """Prove every site of the request in `folder`."""
    request = read_json(folder / "request.json")
    key = sys.stdin.readline().strip()
    prepare()
    facade = current_facade()

    def tell(stage: str) -> None:
        write_text(folder / "stage", stage)

    path = Path(request["path"])
    for index, (told, text) in enumerate(zip(request["sites"], request["texts"], strict=True)):
        fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
        site = Site(**fields)
        started = time.monotonic()
        precisions = [Precision(getattr(torch, name)) for name in request["dtypes"]]
        proof = _prove(path, site, text, precisions, request["seed"], facade, tell)
        seconds = round(time.monotonic() - started, 3)
        write_json(folder / f"{index}.json", sealed(replace(proof, seconds=seconds), key))


def _prove(
    path: Path,
    site: Site,
    new_text: str,
    dtypes: list[Precision],
    seed: int,
    facade: TorchNpu,
    tell: Tell,
) -> Proof:
    def ended(verdict: Verdict, reason: str) -> Proof:
        return Proof(site.op, str(path), site.symbol, verdict, reason)

    try:
        tell("the original module is imported")
        original = import_original(path)
        source = read_source(path)
        tell("the original code is built")
        called = replace(site, symbol=rewritten_symbol(site.symbol, source.text, new_text))
        planned = plan(called, original, source, seed)
    except USER_CODE_ERRORS as error:
        told = str(error).partition("\n")[0] if type(error).__name__ == "MisuseError" else one_line(error)
        return ended(Verdict.INCONCLUSIVE, told or one_line(error))
    branches = Branches()
    try:
        switches = Switches(new_text, source.text)
        switches.turn_on_environment()
        tell("the replaced code is imported")
        replaced = import_replaced(original, new_text, facade, switches, branches)
    except USER_CODE_ERRORS as error:
        return ended(Verdict.FAIL, f"the replaced module cannot be imported: {one_line(error)}")
    try:
        ran = _run_all(planned, replaced, switches, dtypes, branches, tell)
    except _NotBuiltError as error:
        return ended(Verdict.FAIL, str(error))
    runs = judge_runs(ran)
    counted = replace(ended(Verdict.PASS, ""), traffic=_traffic(ran, runs))
    proof = _concluded(counted, runs, dtypes, _forced(planned))
    return _with_masks_tried(proof, _untried_masks(planned[0], ran, runs, switches))


def _traffic(ran: list[Ran], runs: list[Run]) -> tuple[Traffic, ...]:
    """The traffic of the largest call that passes, under no autocast, with gradients where any has them."""
    passing = [
        item.sides.traffic
        for item, run in zip(ran, runs, strict=True)
        if run.verdict is Verdict.PASS and not run.autocast and item.sides.traffic
    ]
    return max(passing, key=lambda told: (len(told), told[0].original.bytes), default=())


def _with_masks_tried(proof: Proof, untried: list[str]) -> Proof:
    """The proof; one that would pass says nothing where masks were not tried."""
    if proof.verdict is not Verdict.PASS or not untried:
        return proof
    why = f"the fused branch reads {untried[0]}, and no run that says anything gave it a mask"
    return replace(proof, verdict=Verdict.INCONCLUSIVE, reason=why)


def _untried_masks(first: Planned, ran: list[Ran], runs: list[Run], switches: Switches) -> list[str]:
    """Masks of an attention that its fused branch reads, and that were None or left out in every run that passes."""
    if first.setting.site.op not in MASKED_OPS:
        return []
    tried = {
        item.planned.case.masked for item, run in zip(ran, runs, strict=True) if run.verdict is Verdict.PASS
    }
    wanted = set(mask_parameters(first.original.parameters)) & switches.read_in_branches()
    return sorted(wanted - tried)


class _NotBuiltError(Exception):
    """The replaced class cannot be built as the original was."""


def _run_all(
    planned: list[Planned], replaced: ModuleType, switches: Switches, dtypes: list[Precision],
    branches: Branches, tell: Tell,
) -> list[Ran]:  # fmt: skip
    twins: dict[int, Built] = {}
    ran = []
    for call in planned:
        if id(call.original) not in twins:
            tell("the replaced code is built")
            try:
                twins[id(call.original)] = rebuild(replaced, call.setting, call.original)
            except USER_CODE_ERRORS as error:
                raise _NotBuiltError(f"the replaced code cannot be built: {one_line(error)}") from error
        twin = twins[id(call.original)]
        switches.turn_on_attributes(twin.owner, getattr(twin.owner, "config", None), call.setting.config)
        under_autocast = [Precision(torch.float32, autocast=True)] if call.under_autocast else []
        for precision in [*dtypes, *under_autocast]:
            sides = run_sides(call, twin, precision, branches, tell)
            tell("the results are kept")  # whatever breaks from here on is not the replaced code's doing
            ran.append(Ran(call, precision, sides))
    return ran


def _concluded(proof: Proof, runs: list[Run], dtypes: list[Precision], forced: tuple[str, ...]) -> Proof:
    """The verdict over all runs: none fails, and at least one passes in each of the dtypes asked for."""
    told = replace(proof, runs=tuple(runs), forced=forced)
    failing = [run for run in runs if run.verdict is Verdict.FAIL]
    if failing:
        first = failing[0]
        return replace(
            told,
            verdict=Verdict.FAIL,
            reason=f"{len(failing)} of {len(runs)} runs fail; {_where(first)}: {first.reason}",
        )
    passing = [run for run in runs if run.verdict is Verdict.PASS]
    for wanted in dtypes:
        if not any(run.dtype == str(wanted) and not run.autocast for run in passing):
            missing = next((run for run in runs if run.dtype == str(wanted) and not run.autocast), None)
            why = missing.reason if missing else "nothing ran"
            return replace(told, verdict=Verdict.INCONCLUSIVE, reason=f"no run in {wanted} passes: {why}")
    worst = max(passing, key=lambda run: severity(run.figures))
    undecided = len(runs) - len(passing)
    also = f", {undecided} say nothing" if undecided else ""
    return replace(
        told, reason=f"{len(passing)} of {len(runs)} runs pass{also}; {_where(worst)}: {worst.reason}"
    )


def _where(run: Run) -> str:
    return f"{run.dtype}{' under autocast' if run.autocast else ''}, {run.case}"


def _forced(planned: list[Planned]) -> tuple[str, ...]:
    """The implementations that were chosen so that the code at the site runs."""
    site = planned[0].setting.site
    if "dispatch_elsewhere" not in site.hazards:
        return ()
    configs = [call.setting.config for call in planned if call.setting.config is not None]
    return tuple(
        f"{word}: {FORCED[name]}"
        for name, (word, ops) in _FORCED_FOR.items()
        if site.op in ops and any(getattr(config, name, None) == FORCED[name] for config in configs)
    )


_FORCED_FOR = {
    "_attn_implementation": ("attention", ("npu_fusion_attention", "npu_scaled_masked_softmax")),
    "_experts_implementation": ("experts", ("npu_grouped_matmul", "npu_swiglu", "npu_geglu")),
}
