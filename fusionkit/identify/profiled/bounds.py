"""What bounds a run of kernels, and what a fused one can save at most: the ceilings of a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fusionkit.identify.profiled.findings import Bound
from fusionkit.identify.profiled.metrics import Ratios
from fusionkit.profile.records import KernelRecord

MAC_BOUND = 0.8
"""aic_mac_ratio from which a product counts as compute-bound; a value near 1 means that fusion does not help."""
TRANSFER_BOUND = 0.5
"""Share of transfers from which a vector kernel counts as memory-bound."""
TINY_US = 5.0
"""Kernels below this are as short as their launch."""
MEMORY_CEILING = 2.0
"""Fusing memory-bound kernels makes them at most about this many times faster."""

_CUBE = ("AI_CORE", "MIX_AIC", "AICORE")


@dataclass(frozen=True, slots=True)
class Roofline:
    """The bound, the columns that tell it, and the us that can be saved at most (None: no ceiling known)."""

    bound: Bound
    ground: str
    saved_us: float | None


def roofline(kernels: Sequence[KernelRecord], ratios: Mapping[int, Ratios]) -> Roofline:
    """What bounds `kernels` (all runs of a sequence): products by aic_mac_ratio, the others by transfers and size."""
    cube = [kernel for kernel in kernels if _is_product(kernel)]
    rest = [kernel for kernel in kernels if not _is_product(kernel)]
    others_us = sum(kernel.duration_us for kernel in rest)
    saved = others_us * (1 - 1 / MEMORY_CEILING)
    mac = _weighted(cube, ratios, "mac")
    if mac is not None and mac >= MAC_BOUND:
        return Roofline("compute", f"aic_mac_ratio {mac:.2f}", saved)
    mean = sum(kernel.duration_us for kernel in kernels) / len(kernels)
    waits = median(kernel.wait_us or 0.0 for kernel in kernels)
    gaps = waits > median(kernel.duration_us for kernel in kernels)
    if mean < TINY_US or gaps:
        told = f"mean kernel {mean:.1f} us" + (", waits exceed durations" if gaps else "")
        return Roofline("launch", told, None)
    transfer = _weighted(rest, ratios, "transfer")
    if transfer is not None:
        ground = f"mte2_ratio {transfer:.2f}"
        return (
            Roofline("memory", ground, saved)
            if transfer >= TRANSFER_BOUND
            else Roofline("unknown", ground, None)
        )
    if cube:
        return Roofline("unknown", "no PMU columns" if mac is None else f"aic_mac_ratio {mac:.2f}", saved)
    return Roofline("memory", "vector cores, no PMU columns", saved)


def _is_product(kernel: KernelRecord) -> bool:
    return kernel.core in _CUBE and "MatMul" in kernel.type


def _weighted(kernels: Sequence[KernelRecord], ratios: Mapping[int, Ratios], key: str) -> float | None:
    """The mean of a ratio over kernels, weighted by duration; None where none has it."""
    held = [
        (kernel.duration_us, ratios[kernel.line].values[key])
        for kernel in kernels
        if kernel.line in ratios and key in ratios[kernel.line].values
    ]
    total = sum(weight for weight, _ in held)
    return sum(weight * value for weight, value in held) / total if total else None
