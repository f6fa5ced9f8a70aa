"""Runs of kernels that can be one module's: adjacent on one stream in one step, and fed by each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

from fusionkit.profile.kernel_records import KernelRecord, Profile

_COMMUNICATION = ("HCCL", "COMMUNICATION")


def streams(profile: Profile) -> list[list[KernelRecord]]:
    """The kernels of each stream in each step, in time order; communication ends a run."""
    runs: list[list[KernelRecord]] = []
    current: dict[tuple[str | None, ...], list[KernelRecord]] = {}
    for record in profile.records:
        key = (record.device, record.stream, record.step)
        if record.core in _COMMUNICATION or record.type.startswith("hcom_"):
            if record.stream is not None:
                current.pop(key, None)
            continue
        if key not in current:
            current[key] = []
            runs.append(current[key])
        current[key].append(record)
    return runs


def connected(kernels: Sequence[KernelRecord]) -> bool:
    """Whether every kernel takes what another of them gave, or gives what another takes, by number of elements.

    Views change shapes without a kernel, so that elements are compared and not dimensions. True without shapes.
    """
    return _connected(tuple((kernel.input_shapes, kernel.output_shapes) for kernel in kernels))


@lru_cache(maxsize=100_000)  # a step repeats the same layers over and over
def _connected(shapes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]) -> bool:
    if len(shapes) == 1 or not any(outputs for _, outputs in shapes):
        return True
    takes = [set(_elements(inputs)) for inputs, _ in shapes]
    gives = [set(_elements(outputs)) for _, outputs in shapes]
    reached = {0}
    for _ in shapes:
        for one in set(range(len(shapes))) - reached:
            fed = any(gives[other] & takes[one] for other in reached if other < one)
            feeds = any(gives[one] & takes[other] for other in reached if other > one)
            joins = any(gives[one] & gives[other] for other in reached)  # both go into a third, later one
            if fed or feeds or joins:
                reached.add(one)
    return len(reached) == len(shapes)


def _elements(shapes: Sequence[str]) -> Iterator[int]:
    """Elements of each operand of more than one."""
    for shape in shapes:
        sizes = shape.split(",")
        if all(size.strip().isdigit() for size in sizes):
            count = prod(int(size) for size in sizes)
            if count > 1:
                yield count
