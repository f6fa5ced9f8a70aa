"""Limits of time and memory per notebook."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.errors import MisuseError

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Limits:
    """Per notebook: wall clock in seconds, and resident memory of the kernel and its children in bytes."""

    timeout_s: float = 600.0
    memory_bytes: int = 8 * GIB

    def __post_init__(self) -> None:
        if not self.timeout_s > 0 or not self.memory_bytes > 0:
            raise MisuseError(
                f"limits of {self.timeout_s:g} s and {self.memory_bytes} bytes: both must be above 0"
            )
