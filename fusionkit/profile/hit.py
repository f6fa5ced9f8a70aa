"""Launches of a fused kernel, compared with the number of sites and with the baseline."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.fusions import sharing
from fusionkit.profile.families import is_kernel
from fusionkit.profile.kernel_records import Profile, pair_note, require_same_source
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class KernelHit(Result, schema="fusionkit.kernels-hit/1"):
    """Launches of a fused kernel in a profile, compared with the number of sites and the run without the fusion."""

    kernel: str
    count: int
    expected: int | None
    baseline_count: int | None
    verdict: Verdict
    reason: str
    note: str | None = None

    def __bool__(self) -> bool:
        return bool(self.verdict)


def check_kernel_hit(
    profile: Profile, kernel: str, expected: int | None = None, baseline: Profile | None = None
) -> KernelHit:
    """Compare the launches of `kernel` with `expected`, the number of sites in all profiled steps.

    `kernel`: a pattern name (`rope`; with the fusions that share an op with it, whose sites `expected` includes), an
    op (`npu_rotary_mul`), a kernel type (`RotaryPositionEmbedding`, older names included), or the type or name of a
    user kernel. Gradient kernels do not count. PASS if `expected` is positive and equals the
    count, and `baseline` (the run without the fusion), if given, has no launch. INCONCLUSIVE without
    `expected`, without kernels, or if unread rows could change the verdict. Raises MisuseError for a negative
    `expected` or profiles from different targets.
    """
    if expected is not None and expected < 0:
        raise MisuseError(f"expected={expected}: the number of sites cannot be negative")
    if baseline is not None:
        require_same_source(baseline, profile)
    count = sum(is_kernel(record, kernel) for record in profile.records)
    before = None if baseline is None else sum(is_kernel(record, kernel) for record in baseline.records)
    verdict, reason = _judge(profile, kernel, count, expected)
    if baseline is not None and verdict is not Verdict.INCONCLUSIVE:
        verdict, reason = _judge_baseline(baseline, before or 0, verdict, reason)
    note = profile.note if baseline is None else pair_note(baseline, profile)
    return KernelHit(kernel, count, expected, before, verdict, reason, note)


def _judge(profile: Profile, kernel: str, count: int, expected: int | None) -> tuple[Verdict, str]:
    """Verdict on the profile alone."""
    launches = f"{count} launches of {' and '.join(sharing(kernel))} among {len(profile.records)} kernels"
    if len(profile.steps) > 1:
        launches += f" in {len(profile.steps)} steps"
    if not profile.records:
        return Verdict.INCONCLUSIVE, "the profile has no kernels"
    if expected is None:
        return Verdict.INCONCLUSIVE, f"{launches}; the expected number of sites is not known"
    if expected == 0 and count == 0:
        return Verdict.INCONCLUSIVE, f"{launches}; with 0 expected sites nothing is shown"
    if count <= expected <= count + profile.left_out and profile.left_out:
        return (
            Verdict.INCONCLUSIVE,
            f"{launches}, {expected} expected; {profile.left_out} unread rows may be more",
        )
    if count == expected:
        return Verdict.PASS, f"{launches}, as expected"
    return Verdict.FAIL, f"{launches}, {expected} expected{'' if count else _similar(profile, kernel)}"


def _judge_baseline(baseline: Profile, before: int, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """Verdict with the baseline, the run without the fusion, taken into account."""
    if before:
        return Verdict.FAIL, f"{reason}; but the baseline has {before} too: they do not come from the fusion"
    if verdict is Verdict.PASS and not baseline.records:
        return Verdict.INCONCLUSIVE, f"{reason}; but the baseline has no kernels to compare with"
    if verdict is Verdict.PASS and baseline.left_out:
        return Verdict.INCONCLUSIVE, f"{reason}; but {baseline.left_out} rows of the baseline are unread"
    return verdict, f"{reason}; none in the baseline"


def _similar(profile: Profile, kernel: str) -> str:
    """Kernel names of the profile that resemble `kernel`, for the error message."""
    keys = {record.key.casefold(): record.key for record in profile.records}
    near = [keys[key] for key in difflib.get_close_matches(kernel.casefold(), sorted(keys), n=3)]
    return f"; similar names: {', '.join(near)}" if near else ""
