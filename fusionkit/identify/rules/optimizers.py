"""Optimizers that have a fused form on the NPU."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.unit import Found, Unit

_FUSED = ("torch.optim.AdamW", "torch.optim.Adam", "torch.optim.adamw.AdamW", "torch.optim.adam.Adam")


def find_optimizers(unit: Unit) -> Iterator[Found]:
    """Every Adam or AdamW that is built."""
    for value in unit.of("call"):
        if value.name in _FUSED:
            yield Found("NpuFusedAdamW", value)
