"""Phase 4: numbers of the replacement, and a match in the extracted code; two separate verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.numeric_artifact import ComparedOutput, write_compared
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.fusions import pattern_names
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.counterexample import Counterexample, write_counterexamples
from fusionkit.numeric.replay import SiteReplay, replay_site
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.passes.registering import PatternClass, activations_of, argument_names, real_inputs, scalars_of
from fusionkit.pattern_files.unit_tests import unit_test_text
from fusionkit.phases.study import Study
from fusionkit.store import write_text
from fusionkit.subjects.units import extract_units
from fusionkit.verdict import Verdict, combine

UNIT_PASS_IS_NO_HIT = (
    "A unit pass is no hit: the unit graph is made from the same code as the pattern. Hits are counted in phase 5 "
    "and 6, on the model's own compile graph."
)
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class UnitVerification:
    """Result of phase 4: a replay per variant, and the matches per unit graph."""

    study: Study
    replays: tuple[tuple[str, SiteReplay], ...]
    matches: tuple[dict[str, Any], ...]
    gates: tuple[Gate, ...]

    def number_rows(self) -> list[dict[str, Any]]:
        """One row per variant and set of inputs."""
        return [
            {
                "pattern": pattern,
                "variant": replay.name,
                "inputs": regime.regime,
                "verdict": str(regime.verdict),
                **figures(regime.comparison),
                "reason": None if regime.verdict else regime.reason.removeprefix(f"{replay.name}: "),
            }
            for pattern, replay in self.replays
            for regime in replay.regimes
        ]

    def search_rows(self) -> list[dict[str, Any]]:
        """One row per variant: the result of its counterexample search."""
        return [
            {
                "pattern": pattern,
                "variant": replay.name,
                "verdict": str(replay.search.verdict),
                "result": replay.search.reason,
                "not exercised": "; ".join(replay.search.not_exercised) or None,
            }
            for pattern, replay in self.replays
            if replay.search is not None
        ]

    def write(self) -> PhaseRecord:
        """Write the two-layer test files, the compared outputs and the evidence."""
        artifacts = [{"path": path, "kind": "test"} for path in _write_tests(self.study)]
        shown = [(replay.name, replay.search.counterexample) for _, replay in self.replays if replay.search]
        artifacts += counterexample_artifacts(
            self.study.run_dir, "04", [(name, example) for name, example in shown if example is not None]
        )
        compared = compared_outputs([replay for _, replay in self.replays])
        numeric: dict[str, Any] = {}
        if compared:
            artifact, numeric = write_compared(self.study.run_dir, "04_units", compared)
            artifacts.append(artifact)
        return self.study.write(4, "04_verify_unit", self.gates, numeric=numeric, artifacts=artifacts)


def figures(comparison: Comparison | None) -> dict[str, float | None]:
    """The columns of a comparison: errors in ulps with their limits, and the smallest row cosine."""
    if comparison is None:
        return {}
    return {
        "mean ulp": _rounded(comparison.mean_ulps),
        "mean limit": _rounded(comparison.mean_limit_ulps),
        "max ulp": _rounded(comparison.max_ulps),
        "max limit": _rounded(comparison.max_limit_ulps),
        "row cosine": None if math.isnan(comparison.min_cosine) else round(comparison.min_cosine, 6),
    }


def _rounded(value: float) -> float | None:
    """Four significant digits; None where nothing was measured."""
    return None if math.isnan(value) else float(f"{value:.4g}")


def verify_unit(study: Study) -> UnitVerification:
    """Call search function and replacement directly, then compile the extracted code with the pattern."""
    groups = pattern_groups(study.config())
    replays = tuple(
        (name, replay_variant(variant, study.model.seed))
        for name, group in groups.items()
        for variant in group
    )
    matches = tuple(row for name in groups for row in _match_units(study, name))
    return UnitVerification(study, replays, matches, (_numbers_gate(replays, study), _match_gate(matches)))


def replay_variant(variant: PatternClass, seed: int) -> SiteReplay:
    """Compare search function and replacement on random inputs of the variant's example shapes."""
    names, scalars = argument_names(variant), scalars_of(variant)
    tensors = [name for name in names if name not in scalars]

    def caller(function: Any) -> Any:
        def call(*given: torch.Tensor) -> Any:
            values = iter(given)
            return function(*(_EPS if name in scalars else next(values) for name in names))

        return call

    drawn = activations_of(variant)
    return replay_site(
        caller(variant.pattern),
        caller(variant.replacement),
        real_inputs(variant, seed),
        eps=_EPS,
        seed=seed,
        activations=[index for index, name in enumerate(tensors) if name in drawn],
        name=variant.name(),
        names=tensors,
    )


def counterexample_artifacts(
    run_dir: Path, phase: str, shown: Sequence[tuple[str, Counterexample]]
) -> list[dict[str, str]]:
    """Write them into the run's artifacts; the entries of PhaseRecord.artifacts."""
    paths = write_counterexamples(run_dir / "artifacts", shown, f"{phase}_counterexample_")
    return [{"path": path.relative_to(run_dir).as_posix(), "kind": "counterexample"} for path in paths]


def compared_outputs(replays: Sequence[SiteReplay]) -> dict[str, ComparedOutput]:
    """The tensors of each replay, one entry per set of inputs and output: `name/regime/0`."""
    return {
        f"{replay.name}/{regime.regime}/{index}": ComparedOutput(
            output.expected, output.actual, output.reference, original_ulps=output.original_ulps
        )
        for replay in replays
        for regime in replay.regimes
        for index, output in enumerate(regime.outputs)
    }


def _match_units(study: Study, name: str) -> list[dict[str, Any]]:
    """Compile each unit that contains a site of the fusion; a unit without a match is a miss."""
    count = study.counts.get(name)
    rows = []
    for unit in extract_units(study.model, () if count is None or count.sites is None else count.sites):
        compiled = compile_subject(unit.subject, study.config())
        hits = sum(match.pattern == name and match.status == "hit" for match in compiled.matches)
        verdict = Verdict.PASS if hits else Verdict.INCONCLUSIVE
        rows.append(
            {"pattern": name, "unit": unit.path or "the model", "hits": hits, "verdict": str(verdict)}
        )
    return rows


def _numbers_gate(replays: Sequence[tuple[str, SiteReplay]], study: Study) -> Gate:
    verdict = combine(replay.verdict for _, replay in replays)
    bad = [(name, replay) for name, replay in replays if replay.verdict is not Verdict.PASS]
    if bad:
        name, replay = next((item for item in bad if item[1].verdict is verdict), bad[0])
        return Gate("numbers", verdict, f"{replay.name} ({name}): {replay.reason}")
    summary = f"{len(replays)} variants, each within tolerance" if replays else "no variant"
    if study.target != "cpu":
        summary += f"; the numbers are the CPU's, from the reference kernels, and not those of {study.target}"
    return Gate("numbers", verdict, summary)


def _match_gate(rows: Sequence[dict[str, Any]]) -> Gate:
    missed = [f"{row['pattern']} in {row['unit']}" for row in rows if not row["hits"]]
    if not rows:
        return Gate("match", Verdict.INCONCLUSIVE, "no unit graph: no site of these fusions was counted")
    if missed:
        return Gate("match", Verdict.INCONCLUSIVE, f"missed {', '.join(missed)}; phase 5 says why")
    return Gate("match", Verdict.PASS, f"{len(rows)} unit graphs matched. {UNIT_PASS_IS_NO_HIT}")


def _write_tests(study: Study) -> list[str]:
    paths = []
    for name in pattern_groups(study.config()):
        trial = study.pattern_file if name == study.trial else None
        text = unit_test_text(name, trial, registered=name in pattern_names())
        path = f"artifacts/tests/test_{re.sub(r'[^a-z0-9_]', '_', name.lower())}_pattern.py"
        write_text(study.run_dir / path, text)
        paths.append(path)
    return paths
