"""Renamed kernels: the same operator, shapes and count under another name in the candidate profile.

An unchanged transpose that aclnnMul launched before and aclnnInplaceCopy launches now is no new copy, although its
name says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fusionkit.profile.families import launch_name, stem
from fusionkit.profile.kernel_records import KernelRecord, Profile

Launch = tuple[str, str]
"""Type and launch name."""
_Shapes = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Renaming:
    """`count` launches of one operator with another name (or another version's type) in the candidate."""

    baseline: Launch
    candidate: Launch
    count: int

    @property
    def keys(self) -> tuple[str, str]:
        """Old and new key: the types where they differ, else the names."""
        (old_type, old_name), (new_type, new_name) = self.baseline, self.candidate
        return (old_name, new_name) if old_type == new_type else (old_type, new_type)


def find_renamings(baseline: Profile, candidate: Profile) -> tuple[Renaming, ...]:
    """All renamings from baseline to candidate; none on a CPU, where names are op names.

    A launch that lost n calls on some shapes is paired with one of the same operator (see `families.stem`) that
    gained at least these n on the same shapes; without shapes in the files, by count alone.
    """
    if "cpu" in (baseline.source, candidate.source):
        return ()
    before, after = _shapes_of(baseline), _shapes_of(candidate)
    lost: dict[Launch, Counter[_Shapes]] = {}
    gained: dict[Launch, Counter[_Shapes]] = {}
    for launch in sorted(before.keys() | after.keys()):
        old, new = before.get(launch, Counter()), after.get(launch, Counter())
        less, more = old - new, new - old
        if less and not more:
            lost[launch] = less
        elif more and not less:
            gained[launch] = more
    return tuple(_match(lost, gained))


def _match(lost: dict[Launch, Counter[_Shapes]], gained: dict[Launch, Counter[_Shapes]]) -> list[Renaming]:
    renamings: list[Renaming] = []
    for launch in sorted(lost, key=lambda one: (-lost[one].total(), one)):
        gone = lost[launch]
        for other, come in gained.items():
            if stem(other[0]) == stem(launch[0]) and gone <= come:
                come.subtract(gone)
                renamings.append(Renaming(launch, other, gone.total()))
                break
    return renamings


def _shapes_of(profile: Profile) -> dict[Launch, Counter[_Shapes]]:
    answer: dict[Launch, Counter[_Shapes]] = {}
    for record in profile.records:
        launch = launch_of(record)
        if launch not in answer:
            answer[launch] = Counter()
        answer[launch][record.input_shapes, record.output_shapes] += 1
    return answer


def launch_of(record: KernelRecord) -> Launch:
    """Type and launch name of a record."""
    return record.type, launch_name(record)
