"""Join a kernel profile to the fused ops: which sequences each would take the place of, and what that is worth."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fusionkit.identify.ops import OPS
from fusionkit.identify.profiled.bounds import roofline
from fusionkit.identify.profiled.chains import connected, streams
from fusionkit.identify.profiled.findings import KernelSequence, ProfileFindings
from fusionkit.identify.profiled.grammar import GRAMMARS, expression
from fusionkit.identify.profiled.metrics import Ratios, read_ratios
from fusionkit.profile.families import is_kernel, stem
from fusionkit.profile.kernel_records import KernelRecord, Profile
from fusionkit.profile.profile_file import load_profile

_MOST_FREQUENT = 10
_LENGTHS = (2, 3, 4, 5)
_LEAST = 3  # times a sequence occurs before it is called frequent

# Kernel types that do what an op does as part of more, or for inference (CANN ops-nn norm/, ops-transformer attention/).
ALSO_FUSED: dict[str, tuple[str, ...]] = {
    "npu_rms_norm": ("AddRmsNorm", "GemmaRmsNorm"),
    "npu_fusion_attention": ("PromptFlashAttention", "FusedInferAttentionScore", "IncreFlashAttention"),
}

Runs = dict[tuple[str, tuple[str, ...]], list[list[KernelRecord]]]


@dataclass(slots=True)
class _Stream:
    """The kernels of one stream in one step; those that a sequence took are not looked at again."""

    kernels: list[KernelRecord]
    taken: set[int] = field(default_factory=set)


def assess_profile(path: Path) -> ProfileFindings:
    """Read a kernel_details.csv and tell what fused ops would do in it. Raises MisuseError as `load_profile` does."""
    profile = load_profile(path)
    ratios = read_ratios(profile.path)
    found = [_Stream(kernels) for kernels in streams(profile)]
    known: Runs = {}
    for grammar in GRAMMARS:
        for stream in found:
            for run in _matches(stream, expression(grammar.words)):
                known.setdefault((grammar.op, tuple(item.type for item in run)), []).append(run)
    frequent, fused = _frequent(found), _fused(profile)
    return ProfileFindings(
        source_name=profile.path.name,
        source=profile.source,
        note=profile.note or "",
        total_us=profile.total_us if profile.source == "npu" else None,
        known=_told(known, profile, ratios),
        frequent=_told(frequent, profile, ratios)[:_MOST_FREQUENT],
        fused={op: len(types) for op, types in fused.items()},
        fused_kernels={op: ", ".join(dict.fromkeys(types)) for op, types in fused.items()},
    )


def _matches(stream: _Stream, pattern: re.Pattern[str]) -> Iterator[list[KernelRecord]]:
    """Runs that a grammar describes, of kernels that are free and feed each other; they are taken."""
    words = ["-" if n in stream.taken else stem(item.type) for n, item in enumerate(stream.kernels)]
    starts: dict[int, int] = {}
    at = 0
    for number, word in enumerate(words):
        starts[at] = number
        at += len(word) + 1
    starts[at] = len(words)
    for match in pattern.finditer("".join(f"{word} " for word in words)):
        first, end = starts[match.start()], starts[match.end()]
        run = stream.kernels[first:end]
        if connected(run):
            stream.taken.update(range(first, end))
            yield run


def _frequent(found: list[_Stream]) -> Runs:
    """Adjacent kernels that often follow each other and that no op was found for; the longest of what overlaps."""
    runs: Runs = {}
    for length in _LENGTHS:
        for stream in found:
            for first in range(len(stream.kernels) - length + 1):
                span = range(first, first + length)
                run = stream.kernels[first : first + length]
                if stream.taken.isdisjoint(span) and connected(run):
                    runs.setdefault(("", tuple(item.type for item in run)), []).append(run)
    often = {key: held for key, held in runs.items() if len(held) >= _LEAST and len(set(key[1])) > 1}
    return {key: held for key, held in often.items() if not _inside_longer(key[1], len(held), often)}


def _inside_longer(kernels: tuple[str, ...], count: int, runs: Runs) -> bool:
    """Whether a longer sequence that occurs about as often holds this one."""
    text = f" {' '.join(kernels)} "
    return any(
        len(other) > len(kernels) and text in f" {' '.join(other)} " and 2 * len(held) >= count
        for (_, other), held in runs.items()
    )


def _told(runs: Runs, profile: Profile, ratios: Mapping[int, Ratios]) -> tuple[KernelSequence, ...]:
    """The sequences, the costliest first; on a CPU by count, since its times are no NPU times."""
    told = [_sequence(op, kernels, held, profile, ratios) for (op, kernels), held in runs.items()]
    return tuple(sorted(told, key=lambda item: (-(item.us or 0.0), -item.count, item.line)))


def _sequence(
    op: str,
    kernels: tuple[str, ...],
    held: list[list[KernelRecord]],
    profile: Profile,
    ratios: Mapping[int, Ratios],
) -> KernelSequence:
    line = min(run[0].line for run in held)
    if profile.source == "cpu":
        return KernelSequence(op, kernels, len(held), None, None, "unknown", "CPU", None, line)
    every = [record for run in held for record in run]
    us = sum(record.duration_us for record in every)
    seen = roofline(every, ratios)
    share = us / profile.total_us if profile.total_us else 0.0
    return KernelSequence(op, kernels, len(held), us, share, seen.bound, seen.ground, seen.saved_us, line)


def _fused(profile: Profile) -> dict[str, list[str]]:
    """Types of the kernels of fused ops that run already, by op, one for each kernel."""
    found: dict[str, list[str]] = {}
    for op in OPS:
        if op.api and op.name.startswith("npu_"):
            kinds = (op.name, *ALSO_FUSED.get(op.name, ()))
            held = [
                record.type for record in profile.records if any(is_kernel(record, kind) for kind in kinds)
            ]
            if held:
                found[op.name] = held
    return found
