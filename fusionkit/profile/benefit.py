"""Benefit of a fusion: kernels gained and lost, and five root causes for a hit without benefit."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.fusion_rows import BenefitKind
from fusionkit.profile.copies import neighbours
from fusionkit.profile.diff import ProfileDiff
from fusionkit.profile.families import is_kernel, stem
from fusionkit.profile.kernel_records import KernelRecord, Profile, sum_us


@dataclass(frozen=True, slots=True)
class RootCause:
    """Why a fusion with hits has no benefit: sign in the kernels, origin, and fix."""

    id: str
    name: str
    sign: str
    origin: str
    fix: str


ROOT_CAUSES: tuple[RootCause, ...] = (
    RootCause(
        "R1",
        "dtype promotion",
        "new Cast kernels before and after the fused one, about two per site",
        "the replacement was given the float32 side of a cast that the pattern contains",
        "take the value before the cast as the pattern's input",
    ),
    RootCause(
        "R2",
        "materialised input",
        "a new Slice before the fused kernel, as large as one of its inputs",
        "the fused kernel wants contiguous inputs and is given a view",
        "pass the whole tensor and let the kernel split it, or move the slice out of the block",
    ),
    RootCause(
        "R3",
        "format conversion",
        "new TensorMove next to the fused kernel, only with another pattern on",
        "two fused kernels disagree on layout or format",
        "switch the patterns on one by one and make the two agree",
    ),
    RootCause(
        "R4",
        "wrong match with fallback",
        "fewer fused kernels than matched sites, and a slower run",
        "the replacement falls back to other kernels on some shapes or dtypes",
        "tighten the match to what the kernel supports",
    ),
    RootCause(
        "R5",
        "slow replacement",
        "no helper kernels, yet fused kernels take longer than those that vanished",
        "the fused kernel is slow on these shapes",
        "leave these shapes to the original, or have the kernel tuned",
    ),
)

_SLICES = frozenset({"Slice", "StridedSlice", "AsStrided"})


@dataclass(frozen=True, slots=True)
class Finding(Result, keys={"shows": "found"}):
    """Whether two profiles show a root cause; `shows` is None if they cannot decide. `count`: kernels."""

    cause: str
    shows: bool | None
    reason: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class Account(Result):
    """Kernels whose count rose (new) or fell (gone), and net = new - gone; us is None on a CPU."""

    new_count: int
    gone_count: int
    net_count: int
    new_us: float | None
    gone_us: float | None
    net_us: float | None


@dataclass(frozen=True, slots=True)
class Benefit(Result):
    """Kind of benefit by kernel counts; the counts are candidate minus baseline."""

    kind: BenefitKind
    compute_kernels: int
    movement_kernels: int
    reason: str


def account(diff: ProfileDiff) -> Account:
    """Sum up new and vanished kernels over the keys whose count changed: net = new - gone."""
    rose = [delta for delta in diff.kernels if delta.count > 0]
    fell = [delta for delta in diff.kernels if delta.count < 0]
    new, gone = sum(delta.count for delta in rose), -sum(delta.count for delta in fell)
    if diff.is_cpu:
        return Account(new, gone, new - gone, None, None, None)
    new_us, gone_us = sum_us(delta.us for delta in rose), sum_us(-delta.us for delta in fell)
    return Account(new, gone, new - gone, new_us, gone_us, sum_us([new_us, -gone_us]))


def observed_benefit(diff: ProfileDiff) -> Benefit:
    """Kind of benefit by kernel counts, never by durations, so that CPU and NPU profiles are judged alike.

    "fewer kernels": kernels that compute became fewer, and so did all kernels together; "less data movement":
    only copies and casts did; "none" otherwise. Communication does not count.
    """
    compute = movement = 0
    for delta in diff.families:
        if delta.key in ("copy", "cast"):
            movement += delta.count
        elif delta.key != "communication":
            compute += delta.count
    kind: BenefitKind = "none"
    if compute + movement < 0:
        kind = "fewer kernels" if compute < 0 else "less data movement"
    reason = f"kernels that compute {compute:+d}, copies and casts {movement:+d}"
    return Benefit(kind, compute, movement, reason)


def find_root_causes(diff: ProfileDiff, kernel: str, matched_sites: int | None = None) -> tuple[Finding, ...]:
    """Look for R1 to R5 around the fused kernel `kernel` (see `families.fused_ops`) in the candidate.

    `matched_sites`: number of sites that the pattern replaced, required for R4. Of helper kernels, only those in
    excess of the baseline count.
    """
    fused = [record for record in diff.candidate.records if is_kernel(record, kernel)]
    if not fused:
        nothing = f"no {kernel} kernel in the candidate"
        lost = _fallback(0, matched_sites)
        return tuple(lost if one.id == "R4" else Finding(one.id, None, nothing) for one in ROOT_CAUSES)
    helpers = (
        _promotion(diff, kernel, len(fused)),
        _materialised(diff, kernel),
        _conversion(diff, kernel),
    )
    return (*helpers, _fallback(len(fused), matched_sites), _slow(diff, fused, helpers))


def _promotion(diff: ProfileDiff, kernel: str, sites: int) -> Finding:
    more = _rise(diff, {"Cast"})
    beside = _beside(diff.candidate, kernel, {"Cast"})
    count = min(more, beside)
    reason = f"{max(more, 0)} new Cast kernels, {beside} next to {sites} fused kernels"
    return Finding("R1", count >= sites, reason, max(count, 0))


def _materialised(diff: ProfileDiff, kernel: str) -> Finding:
    more = _rise(diff, _SLICES)
    before = [
        (previous, record)
        for previous, record, _ in neighbours(diff.candidate)
        if previous and is_kernel(record, kernel) and stem(previous.type) in _SLICES
    ]
    if more <= 0 or not before:
        return Finding(
            "R2", False, f"{max(more, 0)} new slices, {len(before)} directly before a fused kernel"
        )
    if not any(previous.output_shapes and record.input_shapes for previous, record in before):
        return Finding(
            "R2", None, f"{len(before)} slices before fused kernels; without shapes the size is unknown"
        )
    same = sum(bool(set(one.output_shapes) & set(record.input_shapes)) for one, record in before)
    reason = f"{more} new slices, {same} directly before a fused kernel with one of its input shapes"
    return Finding("R2", same > 0, reason, min(more, same))


def _conversion(diff: ProfileDiff, kernel: str) -> Finding:
    kinds = {"TensorMove", "TransData"}
    more = _rise(diff, kinds)
    count = max(0, min(more, _beside(diff.candidate, kernel, kinds)))
    reason = f"{count} new TensorMove or TransData next to a fused kernel"
    return Finding(
        "R3", count > 0, reason + ("; confirm with the other patterns off" if count else ""), count
    )


def _fallback(fused: int, matched_sites: int | None) -> Finding:
    if matched_sites is None:
        return Finding("R4", None, f"{fused} fused kernels; the number of matched sites was not given")
    missing = max(0, matched_sites - fused)
    return Finding("R4", missing > 0, f"{fused} fused kernels for {matched_sites} matched sites", missing)


def _slow(diff: ProfileDiff, fused: list[KernelRecord], helpers: tuple[Finding, ...]) -> Finding:
    if diff.is_cpu:
        return Finding("R5", None, "durations on a CPU say nothing about an NPU")
    if any(finding.shows is not False for finding in helpers):
        return Finding("R5", None, "helper kernels come first: settle R1 to R3")
    spent = sum_us(record.duration_us for record in fused)
    gone = account(diff).gone_us or 0.0
    return Finding(
        "R5", spent > gone, f"fused kernels take {spent:.1f} us, those that vanished took {gone:.1f} us"
    )


def _rise(diff: ProfileDiff, kinds: set[str] | frozenset[str]) -> int:
    """How many more kernels of these stems the candidate has than the baseline."""
    now, before = (
        sum(stem(record.type) in kinds for record in profile.records)
        for profile in (diff.candidate, diff.baseline)
    )
    return now - before


def _beside(profile: Profile, kernel: str, kinds: set[str]) -> int:
    """Kernels of these stems directly before or after a fused kernel, each counted once."""
    return sum(
        stem(record.type) in kinds and any(one and is_kernel(one, kernel) for one in (previous, after))
        for previous, record, after in neighbours(profile)
    )
