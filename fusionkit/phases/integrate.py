"""Phase 6: hits, then kernels, then numbers; a layer that fails stops the later ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fusionkit.capture.capturing import call_model
from fusionkit.errors import MisuseError
from fusionkit.evidence.gates import SITE_NUMBERS, Gate
from fusionkit.evidence.hits_artifact import claim_hits, from_file, write_hits, write_second_hits
from fusionkit.evidence.numeric_artifact import ComparedOutput, write_compared
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.match.hits import HitReport, report_hits
from fusionkit.match.matching import matching_of
from fusionkit.match.site_replay import ReplayReport, replay_hits
from fusionkit.match.whole_model import (
    ModelComparison,
    compare_in_float32,
    compare_model,
    repeat_noise,
    visible_scale,
)
from fusionkit.numeric.sensitivity import NoiseFloor, Sensitivity
from fusionkit.passes.compiled import Compiled
from fusionkit.phases.integration_gates import (
    benefit_line,
    dry_gates,
    forecast_gate,
    hits_gate,
    kernel_gate,
    model_gate,
    second_hits_gate,
)
from fusionkit.phases.second_target import capsule_path, capture_on, hits_on
from fusionkit.phases.study import Study
from fusionkit.phases.unit import compared_outputs, counterexample_artifacts, figures
from fusionkit.profile.collect import collect_cpu_profile, collect_npu_profile
from fusionkit.profile.diff import ProfileDiff, diff_profiles
from fusionkit.profile.kernel_records import Profile
from fusionkit.profile.profile_file import load_profile
from fusionkit.store import write_bytes
from fusionkit.verdict import Verdict

EAGER_PROFILE = "artifacts/06_eager/kernel_details.csv"
COMPILED_PROFILE = "artifacts/06_compiled/kernel_details.csv"
_EMPTY = {
    "kernels": "every kernel runs as often as in eager",
    "numbers": "nothing to compare: no site was hit",
    "sensitivity": "not measured: the compile is not one inference graph",
}


@dataclass(frozen=True, slots=True)
class Integration:
    """Result of phase 6, layer by layer; None for a layer that was not run."""

    study: Study
    compiled: Compiled
    report: HitReport
    benefit: str
    gates: tuple[Gate, ...]
    diff: ProfileDiff | None = None
    replays: ReplayReport | None = None
    whole: tuple[ModelComparison, ...] = ()
    sensitivity: Sensitivity | None = None
    noise: NoiseFloor | None = None
    second: HitReport | None = None

    def hit_rows(self) -> list[dict[str, Any]]:
        """Layer 1: one row per target and pattern."""
        return [
            {
                "target": report.target,
                "pattern": name,
                "hits": len(entry.hits),
                "expected sites": entry.to_dict()["expected_sites"],
                "already fused": len(entry.fused),
                "skipped": len(entry.skipped),
                "verdict": str(entry.verdict),
                "reason": entry.reason,
            }
            for report in (self.report, *([self.second] if self.second else []))
            for name, entry in report.patterns.items()
        ]

    def kernel_rows(self) -> list[dict[str, Any]]:
        """Layer 2: one row per kernel whose count differs between eager and compiled."""
        if self.diff is None:
            return []
        return [
            {"kernel": item.key, "eager": item.baseline_count, "compiled": item.candidate_count}
            for item in self.diff.kernels
            if item.baseline_count != item.candidate_count
        ]

    def replay_rows(self) -> list[dict[str, Any]]:
        """Layer 3: one row per site."""
        return [
            {
                "pattern": match.pattern,
                "module": match.module,
                "anchor": match.anchor,
                "verdict": str(replay.verdict),
                "reason": replay.reason,
            }
            for match, replay in (self.replays.sites if self.replays else ())
        ]

    def model_rows(self) -> list[dict[str, Any]]:
        """Layer 3: the whole-model comparison; float32 is a gate, the working dtype is only reported."""
        return [
            {
                "dtype": item.dtype,
                "role": "gate" if item.dtype == "float32" else "report",
                "verdict": str(item.verdict),
                **figures(item.comparison),
                "reason": None if item.verdict else item.reason,
            }
            for item in self.whole
        ]

    def reported_rows(self) -> list[dict[str, Any]]:
        """Figures that no gate uses: differences from eager, bit-equality, NaN and Inf, the cosine rule."""
        rows: list[dict[str, Any]] = [
            {
                "what": f"{item.dtype}, compiled against eager",
                "max_abs": item.comparison.max_abs,
                "mean_rel": item.comparison.mean_rel,
                "bit-equal": "yes" if item.comparison.bit_equal else "no",
                "NaN": item.comparison.nan_count,
                "Inf": item.comparison.inf_count,
                "cos > 2^-7 (nearly any output passes)": item.comparison.cosine_above_seed_threshold,
            }
            for item in self.whole
        ]
        if self.noise is not None:
            equal = "yes" if self.noise.bit_equal else "no"
            rows.append(
                {"what": "eager against eager, same seed", "max_abs": self.noise.max_abs, "bit-equal": equal}
            )
        return rows

    def sensitivity_rows(self) -> list[dict[str, Any]]:
        """One row per scale defect put into every fused op: does the whole-model comparison refuse it?"""
        if self.sensitivity is None:
            return []
        answers = {Verdict.PASS: "accepts", Verdict.FAIL: "refuses", Verdict.INCONCLUSIVE: "is inconclusive"}
        return [
            {
                "output of every fused op": "as it is" if row.scale == 1 else f"times {row.scale:g}",
                "comparison": answers[row.verdict],
                "mean ulp": row.mean_ulps,
                "max ulp": row.max_ulps,
                "reason": None if row.verdict else row.reason,
            }
            for row in self.sensitivity.rows
        ]

    def why_empty(self, layer: str) -> str:
        """The reason why a layer (kernels, numbers, sensitivity) has no rows."""
        earlier = [gate for gate in self.gates if gate.name.startswith("hits")]
        earlier += [gate for gate in self.gates if gate.name == "kernels" and layer != "kernels"]
        failed = next((gate.name for gate in earlier if gate.verdict is Verdict.FAIL), None)
        if failed is None and self.study.no_values is not None:
            return self.study.no_values
        return f"not run: the gate '{failed}' failed" if failed else _EMPTY[layer]

    def write(self) -> PhaseRecord:
        """Write hits, profiles, compared outputs and the evidence."""
        files = from_file(self.compiled.config, self.compiled.groups)
        before, after = self.compiled.capture(), self.compiled.capture(self.compiled.after)
        artifacts = write_hits(self.study.run_dir, "06_hits", before, after, files, self.report)
        if self.second is not None:
            capsule = capsule_path(self.second.target)
            artifacts += write_second_hits(
                self.study.run_dir, capsule, self.compiled.config, self.second, files
            )
        if self.diff is not None:
            artifacts += [{"path": path, "kind": "kernels"} for path in (EAGER_PROFILE, COMPILED_PROFILE)]
        numeric: dict[str, Any] = {}
        compared = compared_outputs([replay for _, replay in self.replays.sites]) if self.replays else {}
        if self.replays:
            artifacts += counterexample_artifacts(self.study.run_dir, "06", self.replays.counterexamples)
        for item in self.whole:
            for index, tensors in enumerate(zip(item.expected, item.actual, item.reference, strict=False)):
                compared[f"model/{item.dtype}/{index}"] = ComparedOutput(*tensors)
        if compared:
            artifact, numeric = write_compared(self.study.run_dir, "06_sites", compared)
            artifacts.append(artifact)
        return self.study.write(
            6,
            "06_verify_integration",
            self.gates,
            hits=claim_hits(self.report),
            numeric=numeric,
            benefit=self.benefit,
            artifacts=artifacts,
        )


@dataclass(frozen=True, slots=True)
class GivenProfiles:
    """The user's NPU profiles without and with the fusions: two `kernel_details.csv` files."""

    baseline: Path
    candidate: Path

    def keep(self, run_dir: Path) -> tuple[Profile, Profile]:
        """Copy both into the run folder and load them. Raises MisuseError for a file that is no profile."""
        for source, name in ((self.baseline, EAGER_PROFILE), (self.candidate, COMPILED_PROFILE)):
            load_profile(source)
            write_bytes(run_dir / name, source.read_bytes())
        return load_profile(run_dir / EAGER_PROFILE), load_profile(run_dir / COMPILED_PROFILE)


def given_profiles(baseline: str | None, candidate: str | None) -> GivenProfiles | None:
    """The two profiles, or None for neither. Raises MisuseError if only one is given."""
    if not baseline and not candidate:
        return None
    if not baseline or not candidate:
        raise MisuseError("give baseline_profile and candidate_profile together, or neither")
    return GivenProfiles(Path(baseline), Path(candidate))


def integrate(
    study: Study, profiles: GivenProfiles | None = None, second_target: str | None = None
) -> Integration:
    """Run the three layers in order on the whole model.

    `profiles`: NPU profiles, used instead of profiling this process. On a target that computes nothing, layer 2
    requires them and layer 3 is INCONCLUSIVE. `second_target`: a target on which hits are counted as well.
    """
    compiled = study.compile(keep_inputs=study.no_values is None)
    report = report_hits(matching_of(compiled), study.counts, asserted=study.asserted)
    stopped = "rolled back: not every site is hit"
    second = capture_on(study, second_target)
    elsewhere = hits_on(study, second) if second else None
    layer1 = (hits_gate(report), *([second_hits_gate(second, elsewhere)] if second else []))
    result = Integration(study, compiled, report, stopped, layer1, second=elsewhere)
    if any(gate.verdict is Verdict.FAIL for gate in result.gates):
        return result
    dry = () if study.no_values is None else dry_gates(study.no_values)
    if dry and profiles is None:
        return replace(result, gates=(*result.gates, *dry), benefit=f"not claimed: {study.no_values}")
    on_cpu = study.target == "cpu" and profiles is None
    diff = diff_profiles(*(profiles.keep(study.run_dir) if profiles else _profiles(study, compiled)))
    gates = (*result.gates, kernel_gate(compiled, report, diff))
    result = replace(result, diff=diff, gates=gates, benefit=benefit_line(diff, on_cpu=on_cpu))
    if result.gates[-1].verdict is Verdict.FAIL:
        return result
    if dry:
        return replace(result, gates=(*result.gates, *dry[1:]))
    replays = replay_hits(compiled, seed=study.model.seed)
    gates = (*result.gates, Gate(SITE_NUMBERS, replays.verdict, replays.reason))
    result = replace(result, replays=replays, gates=gates)
    if replays.verdict is Verdict.FAIL:
        return replace(result, benefit="rolled back: the numbers of a replaced site are wrong")
    whole = _whole_model(study, compiled)
    one_graph = len(compiled.after) == 1 and whole[0].reference
    sensitivity = visible_scale(compiled, whole[0]) if one_graph else None
    gates = (*result.gates, model_gate(whole), forecast_gate(report, diff, on_cpu=on_cpu))
    return replace(result, whole=whole, sensitivity=sensitivity, noise=repeat_noise(study.model), gates=gates)


def _profiles(study: Study, compiled: Compiled) -> tuple[Profile, Profile]:
    """Profile one eager and one compiled step on this process's target, as kernel_details.csv."""
    profile = collect_npu_profile if study.target == "npu" else collect_cpu_profile

    def collect(model: Callable[..., Any], path: str) -> Profile:
        with torch.no_grad():
            return profile(lambda: call_model(model, study.model), path=study.run_dir / path, warmup=1)

    return collect(study.model.model, EAGER_PROFILE), collect(compiled.outcome.model, COMPILED_PROFILE)


def _whole_model(study: Study, compiled: Compiled) -> tuple[ModelComparison, ...]:
    own = compare_model(compiled)
    if study.model.dtype == "float32":
        return (own,)
    return own, compare_in_float32(compiled, study.reload("float32"))
