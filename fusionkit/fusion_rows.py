"""The records that a row of `fusions` is made of; a row that lacks a field, its own or a nested one, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, Literal

from fusionkit.counters import SiteCounter
from fusionkit.errors import MisuseError

BenefitKind = Literal["fewer kernels", "less data movement", "none"]

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class FusedOp:
    """A fused op by its dispatcher name, its overloads, and its NPU kernel types (CANN's names).

    The first kernel type is that of the op in a CPU profile; `older_types` are its names in older releases.
    """

    name: str = _MISSING
    _: KW_ONLY
    kernel_types: tuple[str, ...] = _MISSING
    source: str = _MISSING
    older_types: tuple[str, ...] = ()
    overloads: tuple[str, ...] = ("default",)

    @property
    def every_type(self) -> tuple[str, ...]:
        """The kernel types, older names included."""
        return (*self.kernel_types, *self.older_types)

    @property
    def packet(self) -> str:
        """The overload packet, as in a graph node's target: `npu.npu_rms_norm`."""
        return self.name.replace("::", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The three registrations of a fusion's pattern: module, group and flag."""

    module: str = _MISSING
    group: str = _MISSING
    flag: str = _MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """One row; a row without one of the fields, or of those of its ops and its pattern, is refused at import.

    `name`: used in commands, parameters and results; the flag without `enable_`. `chain`: the replaced computation.
    `ops`: ops that a replacement calls. `library_ops`: other ops by which a library fuses such a site itself.
    `primitive`: the computation whose sites `counters` count in eager mode; counters for functions of a model's own
    library are in the rows of `subjects`. `benefit` and `reason`: forecast of phase 1. `pattern`: None without one.
    """

    name: str = _MISSING
    chain: str = _MISSING
    ops: tuple[FusedOp, ...] = _MISSING
    library_ops: tuple[str, ...] = _MISSING
    primitive: str = _MISSING
    counters: tuple[SiteCounter, ...] = _MISSING
    benefit: BenefitKind = _MISSING
    reason: str = _MISSING
    pattern: Pattern | None = _MISSING

    def __post_init__(self) -> None:
        lacking = list(self._lacking())
        if lacking:
            row = f"row {self.name!r}" if self.name is not _MISSING else f"the row with {self._first_field()}"
            raise MisuseError(f"fusionkit/fusions.py: {row} lacks {', '.join(lacking)}; give each field")

    def _lacking(self) -> Iterator[str]:
        """The names of the missing fields; `ops[0].source` and `pattern.flag` are nested ones."""
        yield from _missing(self)
        for index, op in enumerate(() if self.ops is _MISSING else self.ops):
            yield from (f"ops[{index}].{name}" for name in _missing(op))
        if isinstance(self.pattern, Pattern):
            yield from (f"pattern.{name}" for name in _missing(self.pattern))

    def _first_field(self) -> str:
        """The first field that is given, by which a row without a name is known."""
        given = (item.name for item in fields(self) if getattr(self, item.name) is not _MISSING)
        name = next(given, "")
        return f"{name} {getattr(self, name)!r}" if name else "no field"

    @property
    def packets(self) -> tuple[str, ...]:
        """The ops of a replacement, as overload packets."""
        return tuple(op.packet for op in self.ops)


def _missing(record: Fusion | FusedOp | Pattern) -> list[str]:
    return [item.name for item in fields(record) if getattr(record, item.name) is _MISSING]
