"""The exit gates of phase 6, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.evidence.gates import MODEL_NUMBERS, SITE_NUMBERS, Gate
from fusionkit.evidence.hits_artifact import second_gate
from fusionkit.fusions import FUSIONS, sharing
from fusionkit.match.hits import HitReport
from fusionkit.match.ops import FORM_OPS, packet
from fusionkit.match.whole_model import ModelComparison
from fusionkit.passes.compiled import Compiled
from fusionkit.passes.site_match import SiteMatch
from fusionkit.phases.second_target import SecondTarget
from fusionkit.profile.benefit import observed_benefit
from fusionkit.profile.diff import ProfileDiff
from fusionkit.profile.hit import check_kernel_hit
from fusionkit.verdict import Verdict, combine

CPU_NOTE = "Measured on CPU: kernel counts are valid, durations are not NPU times."


def dry_gates(why: str) -> tuple[Gate, Gate]:
    """The gates of layers 2 and 3 on a target that computes nothing; `why` is the reason."""
    kernels = f"{why}; give baseline_profile and candidate_profile, two kernel_details.csv of an NPU"
    numbers = f"{why}; phase 4 replays every variant on target cpu, this phase does on cpu and npu"
    return Gate("kernels", Verdict.INCONCLUSIVE, kernels), Gate(SITE_NUMBERS, Verdict.INCONCLUSIVE, numbers)


def hits_gate(report: HitReport, name: str = "hits") -> Gate:
    """Layer 1: the combined verdicts of the patterns."""
    verdict = combine(entry.verdict for entry in report.patterns.values())
    reasons = [f"{key}: {entry.reason}" for key, entry in report.patterns.items() if entry.verdict is verdict]
    return Gate(name, verdict, "; ".join(reasons) or "no fusion takes part in this run")


def second_hits_gate(second: SecondTarget, report: HitReport | None) -> Gate:
    """Layer 1 on the second target; INCONCLUSIVE, with the reason, without a graph of it."""
    name = second_gate(second.target)
    return Gate(name, Verdict.INCONCLUSIVE, second.reason) if report is None else hits_gate(report, name)


def kernel_gate(compiled: Compiled, report: HitReport, diff: ProfileDiff) -> Gate:
    """PASS if each fused kernel runs once per hit and never in eager, and the replaced ops run correspondingly less often."""
    problems = []
    counts = []
    for name, entry in report.patterns.items():
        if not entry.hits:
            continue
        expected = sum(len(report.patterns[one].hits) for one in sharing(name) if one in report.patterns)
        hit = check_kernel_hit(diff.candidate, name, expected=expected, baseline=diff.baseline)
        counts.append(f"{name} {hit.count}")
        if hit.verdict is not Verdict.PASS:
            problems.append(f"{name}: {hit.reason}")
        problems += [f"{name}: {what}" for what in _not_vanished(compiled, entry.hits, diff)]
    if problems:
        return Gate("kernels", Verdict.FAIL, "; ".join(problems))
    if not counts:
        return Gate("kernels", Verdict.INCONCLUSIVE, "no hit, so no kernel to look for")
    return Gate(
        "kernels", Verdict.PASS, f"fused kernels {', '.join(counts)}, none in eager; the originals vanished"
    )


def _not_vanished(compiled: Compiled, hits: Sequence[SiteMatch], diff: ProfileDiff) -> list[str]:
    """Replaced aten ops whose kernel count fell by less than the graphs predict; FORM_OPS are not checked.

    Prediction: calls in the graph before minus calls in the graph after, as a replacement may call the op itself.
    """
    before, after = _calls(compiled.before), _calls(compiled.after)
    nodes = {(graph.key.index, node.name): node for graph in compiled.before for node in graph.nodes}
    replaced = {packet(nodes[(hit.graph_index, name)]) for hit in hits for name in hit.nodes}
    problems = []
    for op in sorted(replaced):
        key = op.replace("aten.", "aten::")
        rows = [item for item in diff.kernels if item.key == key]
        if op in FORM_OPS or not op.startswith("aten.") or not rows:
            continue
        lost = rows[0].baseline_count - rows[0].candidate_count
        if lost < min(before[op] - after[op], rows[0].baseline_count):
            problems.append(f"{key} runs {rows[0].candidate_count} times, {rows[0].baseline_count} in eager")
    return problems


def _calls(graphs: Sequence[CapturedGraph]) -> Counter[str]:
    return Counter(packet(node) for graph in graphs for node in graph.nodes if node.op == "call_function")


def model_gate(whole: Sequence[ModelComparison]) -> Gate:
    """Layer 3: the verdict of the whole-model comparison in float32."""
    gated = [item for item in whole if item.dtype == "float32"]
    if not gated:
        return Gate(MODEL_NUMBERS, Verdict.INCONCLUSIVE, "no float32 run was made")
    return Gate(MODEL_NUMBERS, gated[0].verdict, gated[0].reason)


def forecast_gate(report: HitReport, diff: ProfileDiff, *, on_cpu: bool) -> Gate:
    """Compare phase 1's forecast with the benefit that the kernel counts show."""
    wanted = {row.benefit for row in FUSIONS if (entry := report.patterns.get(row.name)) and entry.hits}
    seen = observed_benefit(diff)
    expected = "fewer kernels" if "fewer kernels" in wanted else "none"
    comparison = f"forecast {expected}, observed {seen.kind}: {seen.reason}"
    verdict = Verdict.PASS if seen.kind == expected or expected == "none" else Verdict.INCONCLUSIVE
    return Gate("benefit kind", verdict, f"{comparison}. {CPU_NOTE}" if on_cpu else comparison)


def benefit_line(diff: ProfileDiff, *, on_cpu: bool) -> str:
    """The evidence line on the benefit; CPU counts claim none."""
    seen = observed_benefit(diff)
    if on_cpu:
        return f"not claimed: {seen.reason}. {CPU_NOTE}"
    return f"{'adopt' if seen.kind != 'none' else 'roll back'}: {seen.reason}"
