"""Read a kernel profile: kernel_details.csv in all its dialects, msprof's op_summary, or a CPU's.

Each row gives a record, an entry in `problems`, or, if part of it could not be read, both.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.profile.csv_rows import RawRow, align, read_rows
from fusionkit.profile.dialects import Header, is_header, missing_fields, read_header
from fusionkit.profile.families import op_type_of_name
from fusionkit.profile.kernel_records import CPU_CORE, KernelRecord, Problem, Profile

FILE_NAME = "kernel_details.csv"
FOLDER_NAME = "ASCEND_PROFILER_OUTPUT"
_NOTHING = frozenset({"", "N/A", "NA"})
_NO_TYPE = _NOTHING | {"0"}


def load_profile(path: str | Path) -> Profile:
    """Read the profile at `path`: a CSV file, or a folder with FOLDER_NAME/FILE_NAME somewhere below it.

    Raises MisuseError, in one line with the contents instead, if the file is absent, empty or no kernel profile, or
    if the folder holds several.
    """
    file = find_profile(Path(path))
    rows = read_rows(_text_of(file))
    first = next(rows, None)
    if first is None:
        raise MisuseError(f"{file}: the file is empty; collect the profile again")
    header = read_header(first.cells)
    if missing := missing_fields(header):
        columns = ", ".join(cell.strip()[:40] for cell in first.cells[:6])
        raise MisuseError(
            f"{file}: no kernel profile, it has no column {' or '.join(missing)}; its first line has: {columns}"
        )
    reading = _Reading(header, file)
    for row in rows:
        reading.add(row)
    return reading.profile()


def find_profile(path: Path) -> Path:
    """The profile file of `path`. Raises MisuseError (see `load_profile`) unless there is exactly one."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise MisuseError(
            f"{path}: no such file or folder; give a {FILE_NAME} or the folder of a profiler run"
        )
    for file in (path / FILE_NAME, path / FOLDER_NAME / FILE_NAME):
        if file.is_file():
            return file
    profiles = sorted(path.rglob(f"{FOLDER_NAME}/{FILE_NAME}"))
    if len(profiles) == 1:
        return profiles[0]
    if profiles:
        names = ", ".join(str(file.relative_to(path)) for file in profiles[:4])
        raise MisuseError(f"{path}: {len(profiles)} profiles below it ({names} ...); name one of them")
    raise MisuseError(f"{path}: no {FOLDER_NAME}/{FILE_NAME} below it; found instead: {_contents(path)}")


def _contents(folder: Path) -> str:
    """Some files of the folder, for the error message; graph modes may write other files but no CSV."""
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    if not files:
        return "nothing"
    return ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")


def _text_of(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MisuseError(f"{file}: cannot read ({error.strerror or error})") from error
    if data.startswith(b"SQLite format 3\0"):
        raise MisuseError(f"{file}: found a SQLite database, not a CSV file; export {FILE_NAME} from it")
    if b"\0" in data[:4096]:
        raise MisuseError(f"{file}: found a binary file, not a CSV file; give a {FILE_NAME}")
    return data.decode("utf-8-sig", errors="replace").replace("\0", "\ufffd")


class _Reading:
    """Builds a Profile from the rows of a file."""

    def __init__(self, header: Header, path: Path) -> None:
        self._header = header
        self._path = path
        self._records: list[tuple[bool, Decimal, KernelRecord]] = []
        self._problems: list[Problem] = []
        self._has_types = False

    def add(self, row: RawRow) -> None:
        """Add one row; a ragged row is aligned with the header, or left out."""
        cells: list[str] | None = list(row.cells)
        faults = [row.fault] if row.fault else []
        if is_header(row.cells, self._header):
            self._problems.append(Problem(row.line, "the header once more, no kernel"))
            return
        if len(row.cells) != self._header.width:
            faults.append(f"{len(row.cells)} fields where the header has {self._header.width}")
            cells = align(row.cells, self._header)
        if any("\ufffd" in cell for cell in row.cells):
            faults.append("bytes that are no UTF-8 text")
        if cells is None or not self._record(row.line, cells, faults):
            shown = ",".join(row.cells)[:60]
            what = "; ".join(faults) or "neither name nor type"
            self._problems.append(Problem(row.line, f"{what}; left out: {shown}", left_out=True))
        elif faults:
            self._problems.append(Problem(row.line, "; ".join(faults) + "; kept"))

    def _record(self, line: int, cells: list[str], faults: list[str]) -> bool:
        """Add the record of aligned cells; unreadable fields go to `faults`. False for a row that is no kernel."""
        field = _Fields(self._header, cells)
        name = field.optional("name") or ""
        kind = field.text("type")
        typed = kind not in _NO_TYPE
        if not name and not typed:
            return False
        start = field.number("start", faults)
        duration = field.number("duration", faults)
        if duration is None or duration < 0:
            faults.append(f"no usable duration ({field.text('duration')[:20]!r}), counted with 0 us")
            duration = Decimal(0)
        wait = field.number("wait", faults)
        self._has_types |= typed
        record = KernelRecord(
            name=name or kind,
            type=kind if typed else op_type_of_name(name),
            core=field.text("core"),
            duration_us=float(duration),
            start_us=None if start is None else float(start),
            wait_us=None if wait is None else float(wait),
            step=field.optional("step"),
            stream=field.optional("stream"),
            device=field.optional("device"),
            input_shapes=field.operands("input_shapes"),
            input_dtypes=field.operands("input_dtypes"),
            input_formats=field.operands("input_formats"),
            output_shapes=field.operands("output_shapes"),
            output_dtypes=field.operands("output_dtypes"),
            output_formats=field.operands("output_formats"),
            line=line,
        )
        self._records.append((start is None, start or Decimal(0), record))
        return True

    def profile(self) -> Profile:
        """The records in time order; start times of 19 digits are compared exactly, as Decimal."""
        if not self._records and not self._problems:
            self._problems.append(Problem(1, "only a header, no kernel rows"))
        ordered = sorted(self._records, key=lambda entry: entry[:2])
        records = tuple(record for _, _, record in ordered)
        return Profile(
            records=records,
            problems=tuple(self._problems),
            path=self._path,
            source="cpu" if any(record.core == CPU_CORE for record in records) else "npu",
            has_types=self._has_types,
        )


class _Fields:
    """The cells of one row by field name."""

    def __init__(self, header: Header, cells: list[str]) -> None:
        self._index = header.index
        self._cells = cells

    def raw(self, field: str) -> str:
        at = self._index.get(field)
        return "" if at is None else self._cells[at].strip()

    def text(self, field: str) -> str:
        return self.raw(field).strip('"').strip()

    def optional(self, field: str) -> str | None:
        text = self.text(field)
        return None if text in _NOTHING else text

    def number(self, field: str, faults: list[str]) -> Decimal | None:
        text = self.text(field)
        if text in _NOTHING:
            return None
        try:
            value = Decimal(text)
        except InvalidOperation:
            value = Decimal("NaN")
        if value.is_finite() and math.isfinite(float(value)):
            return value
        if field != "duration":
            faults.append(f"{field} time {text[:20]!r} is no number")
        return None

    def operands(self, field: str) -> tuple[str, ...]:
        """Operands separated by `;`, without embedded quotes: `"4096,1024;1024"` -> two; N/A or no column -> none."""
        if self.raw(field) in _NOTHING:
            return ()
        return tuple(operand.strip() for operand in self.text(field).split(";"))
