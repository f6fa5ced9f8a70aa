"""The pipeline ratios of a kernel profile, which tell what bounds a kernel, by line of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fusionkit.profile.csv_rows import align, read_rows
from fusionkit.profile.dialects import read_header
from fusionkit.profile.profile_file import find_profile

# Ratio -> its columns in the dialects of kernel_details.csv; the first that is there counts.
COLUMNS: dict[str, tuple[str, ...]] = {
    "mac": ("aic_mac_ratio", "mac_ratio", "aic_mac_fp16_ratio", "mac_fp16_ratio"),
    "transfer": ("aiv_mte2_ratio", "mte2_ratio", "aic_mte2_ratio"),
    "vector": ("aiv_vec_ratio", "vec_ratio"),
}


@dataclass(frozen=True, slots=True)
class Ratios:
    """Shares of a kernel's time from 0 to 1, by key of COLUMNS, as far as the file has them."""

    values: Mapping[str, float]


def read_ratios(path: Path) -> dict[int, Ratios]:
    """The ratios of every row, by its physical line; empty where the file has no such column."""
    rows = read_rows(find_profile(path).read_bytes().decode("utf-8-sig", errors="replace"))
    first = next(rows, None)
    if first is None:
        return {}
    header = read_header(first.cells)
    places = {
        key: next((header.cells.index(name) for name in names if name in header.cells), None)
        for key, names in COLUMNS.items()
    }
    held = {key: place for key, place in places.items() if place is not None}
    found: dict[int, Ratios] = {}
    for row in rows if held else ():
        cells = row.cells if len(row.cells) == header.width else align(row.cells, header)
        values = {} if cells is None else {key: _ratio(cells[place]) for key, place in held.items()}
        found[row.line] = Ratios({key: value for key, value in values.items() if value is not None})
    return found


def _ratio(cell: str) -> float | None:
    try:
        value = float(cell.strip().strip('"'))
    except ValueError:
        return None
    return value if 0 <= value <= 1.5 else None  # some producers round above 1
