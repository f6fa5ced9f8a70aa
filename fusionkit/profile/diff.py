"""Compare the kernels of two runs of one model: vanished, new and renamed kernels.

A renamed kernel has the same operator, shapes and count under another name in the candidate profile. An unchanged
transpose that aclnnMul launched before and aclnnInplaceCopy launches now is no new copy, although its name says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fusionkit.profile.families import family_of, launch_name, stem
from fusionkit.profile.kernel_records import KernelRecord, Profile, pair_note, require_same_source, sum_us

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


@dataclass(frozen=True, slots=True)
class Delta:
    """Count and total us of one key (or family) in both profiles."""

    key: str
    baseline_us: float
    candidate_us: float
    baseline_count: int
    candidate_count: int

    @property
    def us(self) -> float:
        """Candidate minus baseline, in us."""
        return self.candidate_us - self.baseline_us

    @property
    def count(self) -> int:
        """Candidate minus baseline."""
        return self.candidate_count - self.baseline_count

    def to_dict(self, label: str = "key") -> dict[str, Any]:
        """Plain JSON, the key under `label`."""
        return {
            label: self.key,
            "baseline_us": self.baseline_us,
            "candidate_us": self.candidate_us,
            "baseline_count": self.baseline_count,
            "candidate_count": self.candidate_count,
        }


@dataclass(frozen=True, slots=True)
class ProfileDiff:
    """Changes from baseline to candidate.

    Keys are kernel types (derived from names if the file has no types), on a CPU op names: see `KernelRecord.key`.
    `kernels` has all keys, the largest change first: of us on an NPU, of the count on a CPU. `vanished` and `new`
    exclude renamed kernels. `explained_share`: the part of the change of total duration that comes from keys whose
    count changed; the rest comes from unchanged kernels that run longer or shorter. It lies outside 0 to 1 if the
    two parts have opposite signs; None if the total did not change, and on a CPU.
    """

    baseline: Profile = field(repr=False)
    candidate: Profile = field(repr=False)
    kernels: tuple[Delta, ...]
    families: tuple[Delta, ...]
    vanished: tuple[str, ...]
    new: tuple[str, ...]
    renamings: tuple[Renaming, ...]
    explained_share: float | None

    @property
    def is_cpu(self) -> bool:
        """Whether a profile is from a CPU, so that only counts are valid."""
        return "cpu" in (self.baseline.source, self.candidate.source)

    @property
    def note(self) -> str | None:
        """Remarks to show with the diff; None without any."""
        return pair_note(self.baseline, self.candidate)

    def to_dict(self) -> dict[str, Any]:
        """The result of `kernels diff` as plain JSON; times in us."""
        return {
            "schema": "fusionkit.kernels-diff/1",
            "baseline_us": self.baseline.total_us,
            "candidate_us": self.candidate.total_us,
            "kernels": [delta.to_dict() for delta in self.kernels],
            "families": [delta.to_dict("family") for delta in self.families],
            "vanished": list(self.vanished),
            "new": list(self.new),
            "renamed": [list(renaming.keys) for renaming in self.renamings],
            "explained_share": self.explained_share,
            "source": "cpu" if self.is_cpu else "npu",
            "note": self.note,
        }


def diff_profiles(baseline: Profile, candidate: Profile) -> ProfileDiff:
    """Compare two profiles of the same model, inputs and number of steps.

    Raises MisuseError when one was measured on an NPU and the other on a CPU.
    """
    require_same_source(baseline, candidate)
    is_cpu = "cpu" in (baseline.source, candidate.source)
    kernels = _deltas(baseline, candidate, lambda record: record.key, is_cpu)
    renamings = find_renamings(baseline, candidate)
    kinds = {(record.type, record.core) for side in (baseline, candidate) for record in side.records}
    families = {kind: family_of(*kind) for kind in kinds}
    return ProfileDiff(
        baseline=baseline,
        candidate=candidate,
        kernels=kernels,
        families=_deltas(baseline, candidate, lambda record: families[record.type, record.core], is_cpu),
        vanished=tuple(_moved(kernels, renamings, gone=True)),
        new=tuple(_moved(kernels, renamings, gone=False)),
        renamings=renamings,
        explained_share=None if is_cpu else _explained_share(kernels),
    )


def _deltas(
    baseline: Profile, candidate: Profile, key_of: Callable[[KernelRecord], str], by_count: bool
) -> tuple[Delta, ...]:
    sides: list[dict[str, list[float]]] = []
    for profile in (baseline, candidate):
        times: dict[str, list[float]] = {}
        for record in profile.records:
            times.setdefault(key_of(record), []).append(record.duration_us)
        sides.append(times)
    before, after = sides
    deltas = [
        Delta(key, sum_us(old), sum_us(new), len(old), len(new))
        for key in before.keys() | after.keys()
        for old, new in [(before.get(key, []), after.get(key, []))]
    ]
    return tuple(sorted(deltas, key=lambda one: (-abs(one.count if by_count else one.us), one.key)))


def _moved(kernels: tuple[Delta, ...], renamings: tuple[Renaming, ...], *, gone: bool) -> list[str]:
    """Sorted keys of one side only, without those whose launches were all renamed."""
    renamed: dict[str, int] = {}
    for renaming in renamings:
        old, new = renaming.baseline[0], renaming.candidate[0]
        if old != new:
            key = old if gone else new
            renamed[key] = renamed.get(key, 0) + renaming.count
    counts = {
        delta.key: (delta.baseline_count, delta.candidate_count)
        if gone
        else (delta.candidate_count, delta.baseline_count)
        for delta in kernels
    }
    return sorted(key for key, (here, there) in counts.items() if not there and here > renamed.get(key, 0))


def _explained_share(kernels: tuple[Delta, ...]) -> float | None:
    total = sum_us(delta.us for delta in kernels)
    if total == 0:
        return None
    return round(sum_us(delta.us for delta in kernels if delta.count) / total, 6)


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
    renamings: list[Renaming] = []
    for launch in sorted(lost, key=lambda one: (-lost[one].total(), one)):
        gone = lost[launch]
        for other, come in gained.items():
            if stem(other[0]) == stem(launch[0]) and gone <= come:
                come.subtract(gone)
                renamings.append(Renaming(launch, other, gone.total()))
                break
    return tuple(renamings)


def _shapes_of(profile: Profile) -> dict[Launch, Counter[_Shapes]]:
    answer: dict[Launch, Counter[_Shapes]] = {}
    for record in profile.records:
        answer.setdefault(launch_of(record), Counter())[record.input_shapes, record.output_shapes] += 1
    return answer


def launch_of(record: KernelRecord) -> Launch:
    """Type and launch name of a record."""
    return record.type, launch_name(record)
