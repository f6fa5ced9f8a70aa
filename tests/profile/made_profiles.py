"""Profiles made in memory and files made on disk, for the tests of this folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from fusionkit.profile.kernel_records import CPU_CORE, KernelRecord, Problem, Profile

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "kernel_details"


def _header(text: str) -> list[str]:
    return next(csv.reader([text]))


HEADER_2023 = _header(
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Context ID"
)
HEADER_2025 = _header(
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats,Context ID,aic_mac_time(us),aic_mac_ratio,cube_utilization(%)"
)
HEADER_LEVEL0 = _header("Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim")
HEADER_OP_SUMMARY = _header(
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Context ID,mac_time(us)"
)

VALUES = {
    "Step Id": "7",
    "Device_id": "0",
    "Model ID": "4294967295",
    "Task ID": "11",
    "Stream ID": "2",
    "Name": "aclnnMul_MulAiCore_Mul",
    "Type": "Mul",
    "OP State": "dynamic",
    "Accelerator Core": "AI_VECTOR_CORE",
    "Start Time(us)": "1764246877073569.640\t",
    "Duration(us)": "12.5",
    "Wait Time(us)": "0.25",
    "Block": "40",
    "HF32 Eligible": "NO",
    "Input Shapes": '"4,8;8"',
    "Input Data Types": "DT_BF16;DT_BF16",
    "Input Formats": "ND;ND",
    "Output Shapes": '"4,8"',
    "Output Data Types": "DT_BF16",
    "Output Formats": "ND",
    "Context ID": "N/A",
}
SAME = {
    "Step ID": "Step Id",
    "Op Name": "Name",
    "OP Type": "Type",
    "Task Type": "Accelerator Core",
    "Task Start Time(us)": "Start Time(us)",
    "Task Duration(us)": "Duration(us)",
    "Task Wait Time(us)": "Wait Time(us)",
    "Block Dim": "Block",
    "Block Num": "Block",
    "Mix Block Dim": "Block",
    "Mix Block Num": "Block",
}


def row(header: Iterable[str], **changes: str) -> list[str]:
    """A row of `VALUES` under any header; changes by lower-case first word(s): name, type, core, start, duration..."""
    keys = {
        "name": "Name",
        "type": "Type",
        "state": "OP State",
        "core": "Accelerator Core",
        "start": "Start Time(us)",
        "duration": "Duration(us)",
        "wait": "Wait Time(us)",
        "step": "Step Id",
        "stream": "Stream ID",
        "shapes": "Input Shapes",
    }
    values = VALUES | {keys[key]: value for key, value in changes.items()}
    return [values.get(SAME.get(column, column), "0.5") for column in header]


def text_of(rows: Iterable[Iterable[str]], newline: str = "\n") -> str:
    """CSV text as the profiler quotes it."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator=newline).writerows(rows)
    return stream.getvalue()


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    """Write text as it is, newlines untouched."""
    path.write_bytes(text.encode(encoding))
    return path


def record(
    kind: str,
    name: str | None = None,
    us: float = 1.0,
    core: str = "AI_VECTOR_CORE",
    shapes: tuple[str, ...] = (),
    out: tuple[str, ...] = (),
    step: str | None = None,
    start: float | None = None,
    stream: str | None = None,
) -> KernelRecord:
    """A record by its type; the name defaults to it."""
    return KernelRecord(
        name=name or kind,
        type=kind,
        core=core,
        duration_us=us,
        start_us=start,
        step=step,
        stream=stream,
        input_shapes=shapes,
        output_shapes=out,
    )


def cpu(name: str, kind: str) -> KernelRecord:
    """A record as measured on a CPU."""
    return record(kind, name, core=CPU_CORE)


def profile(*records: KernelRecord, left_out: int = 0) -> Profile:
    """A profile of these records, `left_out` rows of which could not be read."""
    problems = tuple(Problem(index + 2, "left out", left_out=True) for index in range(left_out))
    source = "cpu" if any(one.core == CPU_CORE for one in records) else "npu"
    return Profile(records, problems, Path("made.csv"), source, has_types=True)
