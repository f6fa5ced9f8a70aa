"""What bounds a run of kernels, and what a fused one can save at most: the ceilings of a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fusionkit.identify.profiled.findings import Bound
from fusionkit.identify.profiled.metrics import Ratios
from fusionkit.profile.kernel_records import KernelRecord


@dataclass(frozen=True, slots=True)
class Assumption:
    """A limit that no document gives: `ground` says what it rests on. The report prints it beside what it decides."""

    column: str
    limit: float
    unit: str
    meaning: str
    meaning_zh: str
    ground: str
    ground_zh: str


MAC = Assumption(
    "aic_mac_ratio", 0.7, "", "a product counts as compute-bound from here on", "达到此值的矩阵乘视为计算瓶颈",
    "four of five products of a whole training step (28 layers, 336 products, median 0.79, highest 0.89) reach it",
    "一次完整训练 step（28 层，336 次矩阵乘，中位数 0.79，最高 0.89）中有五分之四达到此值",
)  # fmt: skip
TRANSFER = Assumption(
    "mte2_ratio", 0.5, "", "other kernels count as memory-bound from here on", "达到此值的其余 kernel 视为访存瓶颈",
    "reading takes half of the time; in the same step Add has a median of 0.78, Slice 0.73, RmsNorm 0.21",
    "读取占一半时间；同一 step 中 Add 的中位数为 0.78，Slice 0.73，RmsNorm 0.21",
)  # fmt: skip
TINY = Assumption(
    "Duration(us)", 5.0, " us", "kernels shorter than this on average count as launch-bound",
    "平均短于此值的 kernel 视为 launch 瓶颈",
    "three to five times what the shortest twentieth of the kernels of four real profiles take (1.1 to 1.8 us)",
    "四份真实 profile 中最短的二十分之一 kernel 耗时 1.1 至 1.8 us，取其三到五倍",
)  # fmt: skip
CEILING = Assumption(
    "", 2.0, "x", "fusing memory-bound kernels makes them at most about this much faster",
    "访存瓶颈的 kernel 融合后最多约快这么多",
    "one write and one read saved of each two; a ceiling and no forecast",
    "每两次读写省去一次；是上限而非预测",
)  # fmt: skip
ASSUMPTIONS = (MAC, TRANSFER, TINY, CEILING)

_CUBE = ("AI_CORE", "MIX_AIC", "AICORE")
# A fused attention is one kernel already, and its time is in its products.
_PRODUCTS = ("MatMul", "Matmul", "Attention")


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
    saved = others_us * (1 - 1 / CEILING.limit)
    mac = _weighted(cube, ratios, "mac")
    if mac is not None and mac >= MAC.limit:
        return Roofline("compute", _against(mac, MAC), saved)
    mean = sum(kernel.duration_us for kernel in kernels) / len(kernels)
    waits = median(kernel.wait_us or 0.0 for kernel in kernels)
    gaps = waits > median(kernel.duration_us for kernel in kernels)
    if mean < TINY.limit or gaps:
        told = f"mean kernel {mean:.1f} us" + (f" < {TINY.limit:g}" if mean < TINY.limit else "")
        return Roofline("launch", told + (", waits exceed durations" if gaps else ""), None)
    transfer = _weighted(rest, ratios, "transfer")
    if transfer is not None:
        ground = _against(transfer, TRANSFER)
        return (
            Roofline("memory", ground, saved)
            if transfer >= TRANSFER.limit
            else Roofline("unknown", ground, None)
        )
    if cube:
        return Roofline("unknown", "no PMU columns" if mac is None else _against(mac, MAC), saved)
    return Roofline("memory", "vector cores, no PMU columns", saved)


def _against(value: float, assumed: Assumption) -> str:
    """A value beside the limit that it was held against."""
    return f"{assumed.column} {value:.2f} {'>=' if value >= assumed.limit else '<'} {assumed.limit:g}"


def _is_product(kernel: KernelRecord) -> bool:
    return kernel.core in _CUBE and any(word in kernel.type for word in _PRODUCTS)


def _weighted(kernels: Sequence[KernelRecord], ratios: Mapping[int, Ratios], key: str) -> float | None:
    """The mean of a ratio over kernels, weighted by duration; None where none has it."""
    held = [
        (kernel.duration_us, ratios[kernel.line].values[key])
        for kernel in kernels
        if kernel.line in ratios and key in ratios[kernel.line].values
    ]
    total = sum(weight for weight, _ in held)
    return sum(weight * value for weight, value in held) / total if total else None
