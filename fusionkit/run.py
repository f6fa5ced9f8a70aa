"""Run the notebooks of an investigation in order, stop at the first gate that fails, and leave evidence.

Everything is checked before anything is written (`execution.plan`). Each notebook runs in its own kernel and ends
by writing its phase record; its page and the manifest are written before the next notebook starts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from fusionkit.encoding import Result
from fusionkit.errors import FusionKitError, RunBrokenError
from fusionkit.evidence.folder import check_folder, drop_previous, previous_dir, run_folder
from fusionkit.evidence.html import notebook_html
from fusionkit.evidence.manifest import NotebookRun, hash_outputs, now
from fusionkit.evidence.phase_records import compared_nothing, phase_path
from fusionkit.execution.ledger import Ledger, open_ledger
from fusionkit.execution.limits import Limits
from fusionkit.execution.plan import Plan, Step, make_plan
from fusionkit.forking import ForkServer
from fusionkit.store import read_json, write_text
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit/run/1"

# Targets that start no thread, so that a process that has chosen one can be forked.
_WITHOUT_DEVICE = ("cpu", "npu-dry")
NOTEBOOK_MODULES = (
    "fusionkit.phases.analyze",
    "fusionkit.phases.integrate",
    "fusionkit.phases.mismatch",
    "fusionkit.widgets.views",
    "torch._inductor.compile_fx",
)
"""What the notebooks of phases 1 to 7 import, and what their compiles do."""


@dataclass(frozen=True, slots=True)
class PhaseOutcome:
    """One notebook of a run: `verdict` is None if it wrote no phase; `kept`: result of an earlier run.

    `compared_nothing`: it has no gate, or nothing to judge on a target that could.
    """

    notebook: str
    verdict: Verdict | None
    reason: str
    gates: int
    kept: bool
    compared_nothing: bool


@dataclass(frozen=True, slots=True)
class RunResult(Result, schema=SCHEMA, also=("exit_code",), without=("strict",)):
    """A run that has ended. `not_run`: the notebooks after the one at which it stopped."""

    run_dir: Path
    phases: tuple[PhaseOutcome, ...]
    not_run: tuple[str, ...]
    strict: bool

    @property
    def stopped_at(self) -> PhaseOutcome | None:
        """The notebook with a failed gate or without a phase, at which the run stopped."""
        return next((phase for phase in self.phases if phase.verdict in (None, Verdict.FAIL)), None)

    @property
    def inconclusive(self) -> tuple[PhaseOutcome, ...]:
        """The INCONCLUSIVE phases."""
        return tuple(phase for phase in self.phases if phase.verdict is Verdict.INCONCLUSIVE)

    @property
    def exit_code(self) -> int:
        """0; 1 if a gate failed, a phase compared nothing, no phase passes or, if strict, one is INCONCLUSIVE."""
        nothing_compared = any(phase.compared_nothing for phase in self.phases)
        none_passes = not any(phase.verdict is Verdict.PASS for phase in self.phases)
        failed = self.stopped_at is not None or none_passes or nothing_compared
        return int(failed or (self.strict and bool(self.inconclusive)))

    def __bool__(self) -> bool:
        return self.exit_code == 0


class Progress(Protocol):
    """Receives the progress of a run; `index` counts from 1."""

    def notebook_started(self, index: int, total: int, name: str) -> None:
        """A notebook starts."""

    def cell_started(self, cell: int, cells: int) -> None:
        """A cell of it starts."""

    def notebook_ended(self, outcome: str, seconds: float | None) -> None:
        """It ended as PASS, FAIL, INCONCLUSIVE, NO PHASE or BROKEN; without seconds it was kept."""


class Silence:
    """A Progress that shows nothing."""

    def notebook_started(self, index: int, total: int, name: str) -> None:
        """Nothing."""

    def cell_started(self, cell: int, cells: int) -> None:
        """Nothing."""

    def notebook_ended(self, outcome: str, seconds: float | None) -> None:
        """Nothing."""


def run_parameters(
    params_path: Path | str,
    *,
    notebooks: Sequence[str] | None = None,
    overrides: Iterable[str] = (),
    out: Path | str | None = None,
    resume: bool = False,
    strict: bool = False,
    limits: Limits | None = None,
    notebooks_dir: Path | None = None,
    command: Sequence[str] = (),
    progress: Progress | None = None,
) -> RunResult:
    """Run the notebooks for a YAML of parameters; the evidence is in `out`, default evidence/<its stem>.

    `notebooks` selects by number or name. With `resume`, notebooks with a phase that did not fail and unchanged
    inputs are kept. A previous run in `out` is replaced; it is kept as `<out>.previous` until this one has ended.
    Raises MisuseError for bad input, with nothing written; MisuseError or RunBrokenError if a notebook breaks.
    """
    plan = make_plan(
        Path(params_path),
        notebooks=notebooks,
        overrides=overrides,
        out=None if out is None else Path(out),
        notebooks_dir=notebooks_dir,
    )
    previous = check_folder(plan.run_dir)
    with run_folder(plan.run_dir, previous, keep=resume):
        ledger, kept = open_ledger(plan, command, previous if resume else None)
        try:
            result = _run_steps(plan, ledger, kept, limits or Limits(), strict, progress or Silence())
            ledger.write(return_code=result.exit_code)
        except (FusionKitError, OSError) as error:
            broken = _broken(error, plan.run_dir)
            ledger.end_broken(broken.exit_code)
            raise broken from error
        except KeyboardInterrupt:
            ledger.end_broken(130)
            raise
    drop_previous(plan.run_dir)
    return result


def _run_steps(
    plan: Plan, ledger: Ledger, kept: set[str], limits: Limits, strict: bool, progress: Progress
) -> RunResult:
    from fusionkit.execution.kernel import kernel_server  # the extra `notebooks`, which the plan has checked

    chosen = {(step.parameters.get("target"), str(step.parameters.get("subject"))) for step in plan.steps}
    target, subject = chosen.pop() if len(chosen) == 1 else (None, "")
    ready = (target, NOTEBOOK_MODULES, subject) if target in _WITHOUT_DEVICE else ()
    with kernel_server(*ready) as server:
        phases = _outcomes(plan, ledger, kept, limits, progress, server)
    not_run = tuple(step.name for step in plan.steps[len(phases) :])
    return RunResult(plan.run_dir, tuple(phases), not_run, strict)


def _outcomes(
    plan: Plan, ledger: Ledger, kept: set[str], limits: Limits, progress: Progress, server: ForkServer
) -> list[PhaseOutcome]:
    """Of the notebooks up to the first that fails."""
    phases: list[PhaseOutcome] = []
    for index, step in enumerate(plan.steps, start=1):
        progress.notebook_started(index, len(plan.steps), step.name)
        if step.name in kept:
            phases.append(_outcome(plan.run_dir, step, kept=True))
            progress.notebook_ended(str(phases[-1].verdict), None)
            continue
        started = time.monotonic()
        try:
            phases.append(_run_step(plan, step, ledger, limits, progress, server))
        except FusionKitError:
            progress.notebook_ended("BROKEN", time.monotonic() - started)
            raise
        verdict = phases[-1].verdict
        progress.notebook_ended("NO PHASE" if verdict is None else str(verdict), time.monotonic() - started)
        if verdict in (None, Verdict.FAIL):
            break
    return phases


def _run_step(
    plan: Plan, step: Step, ledger: Ledger, limits: Limits, progress: Progress, server: ForkServer
) -> PhaseOutcome:
    """Execute one notebook, make its page, enter it into the manifest."""
    from fusionkit.execution.notebook import execute_notebook

    before, started = hash_outputs(plan.run_dir, ledger.hashes), now()
    partial = plan.run_dir / f"{step.name}.partial.ipynb"
    parameters = {**step.parameters, "run_dir": str(plan.run_dir)}

    def enter(return_code: int, verdict: Verdict | None, error: str | None = None) -> None:
        times, outputs = (started, now()), ledger.outputs_since(before)
        name = None if verdict is None else str(verdict)
        run = NotebookRun(step.name, step.number, step.key, return_code, name, *times, outputs, error)
        ledger.enter(run)

    try:
        node = execute_notebook(step.source, partial, parameters, limits, progress.cell_started, server)
        write_text(plan.run_dir / f"{step.name}.html", notebook_html(node, fallback_title=step.name))
        os.replace(partial, plan.run_dir / f"{step.name}.ipynb")
        outcome = _outcome(plan.run_dir, step, kept=False)
    except FusionKitError as error:
        with contextlib.suppress(FusionKitError):  # report the first error, not one of these
            _keep_partial_page(partial)
            enter(error.exit_code, None, str(error))
        raise
    enter(int(outcome.verdict in (None, Verdict.FAIL)), outcome.verdict)
    return outcome


def _outcome(run_dir: Path, step: Step, *, kept: bool) -> PhaseOutcome:
    path = phase_path(run_dir, step.number)
    if not path.is_file():
        return PhaseOutcome(step.name, None, f"left no {path.parent.name}/{path.name}", 0, kept, True)
    phase = read_json(path)
    verdict, gates = Verdict(phase["verdict"]), len(phase["gates"])
    return PhaseOutcome(step.name, verdict, phase["reason"], gates, kept, compared_nothing(phase))


def _keep_partial_page(partial: Path) -> None:
    from nbformat import read

    if partial.is_file():
        node = cast(Any, read)(partial, as_version=4)  # untyped
        write_text(partial.with_suffix(".html"), notebook_html(node, fallback_title=partial.stem))


def _broken(error: FusionKitError | OSError, run_dir: Path) -> FusionKitError:
    """The error of a broken run; its message names the folder of the previous run, if that was kept."""
    if isinstance(error, OSError):
        error = RunBrokenError(f"{run_dir}: {error.strerror or error}")
    aside = previous_dir(run_dir)
    return type(error)(f"{error}; the run before it is kept in {aside}") if aside.is_dir() else error
