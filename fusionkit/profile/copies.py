"""Copy kernels: count by kind, neighbouring kernels, and the change against a baseline.

A copy is recognised by its operator type (`ViewCopy`, whatever API launched it) and by the API
`aclnnInplaceCopy`. Kernel names alone mislead: unchanged transposes that move from aclnnMul to aclnnInplaceCopy
are no new copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fusionkit.encoding import Result
from fusionkit.profile.diff import Renaming, find_renamings, launch_of
from fusionkit.profile.families import stem
from fusionkit.profile.kernel_records import KernelRecord, Profile, pair_note, require_same_source, sum_us
from fusionkit.profile.schemes import Scheme, choose_schemes
from fusionkit.verdict import Verdict

COPY_KINDS: tuple[tuple[str, str], ...] = (
    ("ViewCopy", "reshapes that need a copy, e.g. 3D to 2D"),
    ("TensorMove", "plain copies, e.g. from functionalisation"),
    ("StridedSlice", "regrouping, e.g. of Q, K and V"),
    ("Transpose", "axes exchanged, e.g. around attention"),
    ("Cast", "between float32 and half precision"),
    ("Slice", "part of a tensor made contiguous"),
    ("AsStrided", "views with arbitrary strides made contiguous"),
)
"""Kinds and where they usually come from; op types of CANN's aclnnInplaceCopy and aclnnContiguous."""

NEVER_NEW = ("TensorMove", "StridedSlice")
"""Kinds that compilation adds; they must not increase even if the total does not."""

MIN_GAIN_US = 100.0
"""Net gain that outweighs added copies: at least 0.1 ms ..."""
MIN_GAIN_SHARE = 0.03
"""... and above the usual noise of 3 %."""

_KINDS = {name for name, _ in COPY_KINDS}
START, END = "(start)", "(end)"


@dataclass(frozen=True, slots=True)
class CopyKind(Result):
    """Copies of one kind, `inplace_copy` of them launched by aclnnInplaceCopy; baseline fields None without a baseline."""

    kind: str
    count: int
    us: float
    inplace_copy: int
    baseline_count: int | None = None
    baseline_us: float | None = None
    baseline_inplace_copy: int | None = None


@dataclass(frozen=True, slots=True)
class CopyPair(Result):
    """Copies of one kind between the same two neighbours (keys) in a step and stream; us of the copies."""

    previous: str
    copy: str
    next: str
    count: int
    us: float


@dataclass(frozen=True, slots=True)
class CopyReport(Result, schema="fusionkit.kernels-copies/1", without=("renamings",)):
    """All copies of a profile, their neighbours, the verdict against a baseline, and the schemes."""

    total_us: float
    count: int
    baseline_count: int | None
    kinds: tuple[CopyKind, ...]
    pairs: tuple[CopyPair, ...]
    renamings: tuple[Renaming, ...] = field(repr=False)
    schemes: tuple[Scheme, ...]
    verdict: Verdict
    reason: str
    note: str | None = None

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return Result.to_dict(self) | {"renamed": [list(renaming.keys) for renaming in self.renamings]}


def copy_kind(record: KernelRecord) -> str | None:
    """Kind of copy of a record, None if it is no copy: by type, and by aclnnInplaceCopy whatever the type."""
    kind = stem(record.type)
    return kind if kind in _KINDS or _is_inplace_copy(record) else None


def analyze_copies(
    profile: Profile,
    baseline: Profile | None = None,
    *,
    missed_sites: int | None = None,
    never_new: tuple[str, ...] = NEVER_NEW,
) -> CopyReport:
    """Count the copies of `profile`, with their neighbours, and judge them against `baseline`.

    PASS if neither the total nor any kind in `never_new` increased, renamings aside, or if a net gain outweighs the
    increase (NPU only; at least 0.1 ms and 3 %). FAIL if copies increased. INCONCLUSIVE without a baseline, without
    kernels, with different numbers of steps, or if unread rows could change the verdict. `missed_sites`: number of
    missed sites, required for scheme A. Raises MisuseError if the profiles are from different targets.
    """
    if baseline is not None:
        require_same_source(baseline, profile)
    kinds = _kinds(profile, baseline)
    renamings = () if baseline is None else tuple(_copy_renamings(baseline, profile))
    verdict, reason = _judge(profile, baseline, kinds, renamings, never_new)
    return CopyReport(
        total_us=sum_us(kind.us for kind in kinds),
        count=sum(kind.count for kind in kinds),
        baseline_count=None if baseline is None else sum(kind.baseline_count or 0 for kind in kinds),
        kinds=kinds,
        pairs=_pairs(profile),
        renamings=renamings,
        schemes=choose_schemes(profile, verdict, missed_sites),
        verdict=verdict,
        reason=reason,
        note=profile.note if baseline is None else pair_note(baseline, profile),
    )


def neighbours(profile: Profile) -> Iterator[tuple[KernelRecord | None, KernelRecord, KernelRecord | None]]:
    """Each record with the one before and the one after it in its step, stream and device, by start time."""
    groups: dict[tuple[str | None, ...], list[KernelRecord]] = {}
    for record in profile.records:
        groups.setdefault((record.step, record.device, record.stream), []).append(record)
    for group in groups.values():
        group.sort(key=lambda one: (one.start_us is None, one.start_us or 0.0))
        for previous, record, after in zip([None, *group], group, [*group[1:], None], strict=False):
            yield previous, record, after


def _is_inplace_copy(record: KernelRecord) -> bool:
    return record.name.startswith("aclnnInplaceCopy_")


def _kinds(profile: Profile, baseline: Profile | None) -> tuple[CopyKind, ...]:
    sides = [_by_kind(profile), {} if baseline is None else _by_kind(baseline)]
    answer = []
    for kind in sorted(sides[0].keys() | sides[1].keys()):
        now, before = (side.get(kind, []) for side in sides)
        numbers = (len(now), sum_us(one.duration_us for one in now), sum(map(_is_inplace_copy, now)))
        if baseline is None:
            answer.append(CopyKind(kind, *numbers))
        else:
            us = sum_us(one.duration_us for one in before)
            answer.append(CopyKind(kind, *numbers, len(before), us, sum(map(_is_inplace_copy, before))))
    return tuple(answer)


def _by_kind(profile: Profile) -> dict[str, list[KernelRecord]]:
    groups: dict[str, list[KernelRecord]] = {}
    for record in profile.records:
        if kind := copy_kind(record):
            groups.setdefault(kind, []).append(record)
    return groups


def _pairs(profile: Profile) -> tuple[CopyPair, ...]:
    groups: dict[tuple[str, str, str], list[float]] = {}
    for previous, record, after in neighbours(profile):
        if kind := copy_kind(record):
            key = (previous.key if previous else START, kind, after.key if after else END)
            groups.setdefault(key, []).append(record.duration_us)
    pairs = [CopyPair(*key, len(times), sum_us(times)) for key, times in groups.items()]
    return tuple(sorted(pairs, key=lambda pair: (-pair.count, pair.previous, pair.copy, pair.next)))


def _copy_renamings(baseline: Profile, profile: Profile) -> Iterator[Renaming]:
    """Renamings that end in a copy."""
    copies = {launch_of(record) for record in profile.records if copy_kind(record)}
    return (renaming for renaming in find_renamings(baseline, profile) if renaming.candidate in copies)


def _judge(
    profile: Profile,
    baseline: Profile | None,
    kinds: tuple[CopyKind, ...],
    renamings: tuple[Renaming, ...],
    never_new: tuple[str, ...],
) -> tuple[Verdict, str]:
    now = sum(kind.count for kind in kinds)
    if baseline is None:
        return Verdict.INCONCLUSIVE, f"{now} copies; without a baseline it is not known whether they rose"
    if not profile.records or not baseline.records:
        empty = "candidate" if baseline.records else "baseline"
        return Verdict.INCONCLUSIVE, f"the {empty} has no kernels: nothing was compared"
    if profile.steps and baseline.steps and len(profile.steps) != len(baseline.steps):
        return Verdict.INCONCLUSIVE, (
            f"the baseline has {len(baseline.steps)} steps and the candidate {len(profile.steps)}; "
            "collect the same number"
        )
    return _judge_rise(profile, baseline, kinds, renamings, never_new)


def _judge_rise(
    profile: Profile,
    baseline: Profile,
    kinds: tuple[CopyKind, ...],
    renamings: tuple[Renaming, ...],
    never_new: tuple[str, ...],
) -> tuple[Verdict, str]:
    """Verdict on two comparable profiles."""
    now = sum(kind.count for kind in kinds)
    before = sum(kind.baseline_count or 0 for kind in kinds)
    known = {launch_of(record) for record in baseline.records if copy_kind(record)}
    moved = [renaming for renaming in renamings if renaming.baseline not in known]
    rise = now - before - sum(renaming.count for renaming in moved)
    rises = {kind.kind: _rise(kind, moved) for kind in kinds}
    worse = max((rises.get(kind, 0) for kind in never_new), default=0)
    text = f"copies {before} -> {now}" + _renaming_text(renamings)
    if rise > baseline.left_out or worse > baseline.left_out:
        if worse <= 0 and (gain := _net_gain(profile, baseline)):
            return Verdict.PASS, f"{text}; the rise is outweighed by a net gain of {gain:.1f} us"
        rose = ", ".join(f"{kind} by {more}" for kind, more in rises.items() if more > 0)
        return Verdict.FAIL, f"{text}; rose: {rose}"
    if max(rise, worse) + profile.left_out > 0:
        return Verdict.INCONCLUSIVE, f"{text}; {pair_note(baseline, profile)}: they may be copies"
    return Verdict.PASS, f"{text}; no rise"


def _rise(kind: CopyKind, moved: list[Renaming]) -> int:
    renamed = sum(one.count for one in moved if stem(one.candidate[0]) == kind.kind)
    return kind.count - (kind.baseline_count or 0) - renamed


def _renaming_text(renamings: tuple[Renaming, ...]) -> str:
    if not renamings:
        return ""
    moves = ", ".join(f"{one.count} {' -> '.join(one.keys)}" for one in renamings[:3])
    return f" (renamed, not new: {moves})"


def _net_gain(profile: Profile, baseline: Profile) -> float | None:
    """Total us saved if above the limits, else None; None for CPU profiles."""
    if "cpu" in (profile.source, baseline.source):
        return None
    gain = baseline.total_us - profile.total_us
    return gain if gain >= MIN_GAIN_US and gain >= MIN_GAIN_SHARE * baseline.total_us else None
