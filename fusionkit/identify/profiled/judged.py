"""What a profile says against a recommendation: the fused kernel runs already, and its unfused form does not."""

from __future__ import annotations

from dataclasses import replace

from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.profiled.findings import ProfileFindings


def with_profile(scan: ScanReport, found: ProfileFindings) -> ScanReport:
    """The scan with what the profile shows as fused deferred.

    A profile names no modules, so that it can be of another part of the model: nothing is refused for it, and where it
    shows the unfused sequence too, the recommendation stands.
    """
    return replace(scan, candidates=tuple(_judged(item, found) for item in scan.candidates))


def _judged(candidate: Candidate, found: ProfileFindings) -> Candidate:
    count = found.fused.get(candidate.op, 0)
    if candidate.recommend != "yes" or not count or found.of(candidate.op):
        return candidate
    kernel = found.fused_kernels.get(candidate.op, candidate.op)
    return replace(
        candidate,
        recommend="defer",
        priority=min(candidate.priority + 1, 3),
        reason=f"already fused in the profile ({kernel}, {count} calls), which shows no unfused sequence of it; a profile"
        " names no modules: replace this only if it runs outside of what was profiled",
        reason_zh=f"profile 中已是融合 kernel（{kernel}，{count} 次），且没有未融合的对应序列；profile 不记录模块名："
        "仅当这段代码不在该 profile 范围内时才替换",
    )
