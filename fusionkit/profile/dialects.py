"""The column names of kernel_details.csv and msprof's op_summary, as one table.

Profiler versions name columns differently: torch_npu 2023 and 2025, its 2026 `Block Num`, the reduced Level0 files,
and msprof's raw op_summary. Each field uses its first alias that the header has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "name", "type", "state", "core", "number", "duration", "count", "flag", "shapes", "word", "any"
]

_TORCH_NPU = "Ascend Extension for PyTorch, profiler: kernel_details.csv"
_BOTH = f"{_TORCH_NPU}; CANN msprof: op_summary_*.csv"


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a kernel row, its headers (today's first; the first one present is used) and the kind of its cells."""

    field: str
    aliases: tuple[str, ...]
    kind: Kind
    source: str


# In the order of today's file.
COLUMNS: tuple[Column, ...] = (
    Column("step", ("Step Id", "Step ID"), "any", _TORCH_NPU),
    Column("device", ("Device_id", "Device ID", "Device Id"), "count", _BOTH),
    Column("model", ("Model ID", "Model Id"), "count", _BOTH),
    Column("task", ("Task ID", "Task Id"), "count", _BOTH),
    Column("stream", ("Stream ID", "Stream Id"), "count", _BOTH),
    Column("name", ("Name", "Op Name"), "name", _BOTH),
    Column("type", ("Type", "OP Type"), "type", _BOTH),
    Column("state", ("OP State",), "state", f"{_TORCH_NPU} since 2025"),
    Column("core", ("Accelerator Core", "Task Type"), "core", _BOTH),
    Column("start", ("Start Time(us)", "Task Start Time(us)"), "number", _BOTH),
    Column("duration", ("Duration(us)", "Task Duration(us)"), "duration", _BOTH),
    Column("wait", ("Wait Time(us)", "Task Wait Time(us)"), "duration", _BOTH),
    Column("blocks", ("Block Num", "Block Dim"), "count", f"{_TORCH_NPU}: Num since 2026-02, Dim before"),
    Column("mix_blocks", ("Mix Block Num", "Mix Block Dim"), "count", f"{_TORCH_NPU}: as above"),
    Column("hf32", ("HF32 Eligible",), "flag", f"{_TORCH_NPU} since 2025"),
    Column("input_shapes", ("Input Shapes",), "shapes", _BOTH),
    Column("input_dtypes", ("Input Data Types",), "word", _BOTH),
    Column("input_formats", ("Input Formats",), "word", _BOTH),
    Column("output_shapes", ("Output Shapes",), "shapes", _BOTH),
    Column("output_dtypes", ("Output Data Types",), "word", _BOTH),
    Column("output_formats", ("Output Formats",), "word", _BOTH),
    Column("context", ("Context ID", "Context Id"), "number", _BOTH),
)

CURRENT_HEADER = tuple(column.aliases[0] for column in COLUMNS)
"""The columns that torch_npu writes today at Level1 with no PMU metrics, in its order."""

REQUIRED: tuple[str, ...] = ("name", "duration")
"""Fields without which a table is not a kernel profile."""

_PMU = re.compile(r"\((us|%|GB/s)\)|_ratio$|_cycles$|_fops$|_rate$|_bw\b", re.IGNORECASE)
"""PMU metric columns by the form of their names; prefixes vary (`aic_mac_time(us)`, `mac_time(us)`)."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header: number of columns, position of each field, kind of each column, normalised cells."""

    width: int
    index: dict[str, int]
    kinds: tuple[Kind, ...]
    cells: tuple[str, ...]


def read_header(cells: Sequence[str]) -> Header:
    """Map a header row to fields. A field whose aliases are all absent is absent from `index`."""
    normal = [_normal(cell) for cell in cells]
    index: dict[str, int] = {}
    kinds: list[Kind] = ["number" if _PMU.search(cell) else "any" for cell in normal]
    for column in COLUMNS:
        for alias in column.aliases:
            if _normal(alias) in normal:
                position = normal.index(_normal(alias))
                index[column.field] = position
                kinds[position] = column.kind
                break
    return Header(len(cells), index, tuple(kinds), tuple(normal))


def missing_fields(header: Header) -> list[str]:
    """Current headers of the required fields that the file lacks."""
    return [
        column.aliases[0]
        for column in COLUMNS
        if column.field in REQUIRED and column.field not in header.index
    ]


def is_header(cells: Sequence[str], header: Header) -> bool:
    """Whether a row repeats the header, as in concatenated files."""
    return tuple(_normal(cell) for cell in cells) == header.cells


def _normal(cell: str) -> str:
    return " ".join(cell.strip().strip('"').split()).casefold()
