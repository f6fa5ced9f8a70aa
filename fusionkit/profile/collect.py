"""Profile a function on an NPU, or on the CPU in the format of an NPU's kernel_details.csv.

On the CPU, an op with its own kernel in torch's dispatcher, or in a fused namespace, is one row; ops that it calls inside are
hidden, because CPU internals (addmm copies its bias, mean is a sum and a division) do not apply to an NPU. Views,
allocations and ops that only call other ops give no row. Accelerator Core is `CPU` on every row. Kernel counts are
valid, durations are not NPU times.
"""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from fusionkit.errors import MisuseError
from fusionkit.npu.real import record_profile
from fusionkit.profile.dialects import CURRENT_HEADER
from fusionkit.profile.kernel_records import CPU_CORE, Profile
from fusionkit.profile.op_traits import Role, copy_type, cpu_op_type, dtype_word, op_role
from fusionkit.profile.profile_file import find_profile, load_profile
from fusionkit.store import write_bytes, write_text

FUSED_NAMESPACES = ("npu", "fusionkit")
_KINETO_LOG_LEVEL = "KINETO_LOG_LEVEL"
# Above USDT, kineto's highest level, at which it reports start and stop of every profile on stderr.
_QUIET = "6"
_STEP = "ProfilerStep#"
_NONE = "N/A"


@dataclass(frozen=True, slots=True)
class _Operand:
    """Metadata of one tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype | None

    @property
    def is_contiguous(self) -> bool:
        """Whether the strides are those of a dense row-major tensor; dimensions of size 1 do not matter."""
        if 0 in self.shape:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True, slots=True)
class _Kernel:
    """An op call that becomes a row, with its tensors; times in ns."""

    name: str
    start_ns: int
    duration_ns: int
    thread: int
    operands: tuple[_Operand, ...]


def collect_cpu_profile(
    fn: Callable[[], object],
    *,
    warmup: int = 2,
    steps: int = 1,
    path: str | Path,
    fused_namespaces: tuple[str, ...] = FUSED_NAMESPACES,
) -> Profile:
    """Call `fn` `warmup` times, then `steps` times under torch.profiler; write `path` and read it back.

    Warm-up calls are not recorded; compilation must be complete after them. Every op of `fused_namespaces` is
    one row. The file has torch_npu's current columns; those without a CPU equivalent are N/A (also output columns,
    except for in-place ops, whose output is their first operand). Raises
    MisuseError for a bad count or a `path` that is a folder, RunBrokenError when `path` cannot be written;
    what `fn` raises passes through.
    """
    target = Path(path)
    if warmup < 0 or steps < 1:
        raise MisuseError(f"warmup={warmup}, steps={steps}: need warmup >= 0 and steps >= 1")
    if target.is_dir():
        raise MisuseError(f"{target}: is a folder; give the CSV file to write")
    for _ in range(warmup):
        fn()
    with _quiet_kineto(), profile(activities=[ProfilerActivity.CPU], record_shapes=True) as running:
        for step in range(steps):
            with record_function(f"{_STEP}{step}"):
                fn()
    # The event tree is the only view with dtypes and strides in all supported torch versions.
    roots: list[Any] = list(running.profiler.kineto_results.experimental_event_tree())
    roles: dict[str, Role] = {}
    rows = [row for root in roots for row in _rows_of(root, fused_namespaces, roles)]
    kernels = sorted(rows, key=lambda kernel: kernel.start_ns)
    write_text(target, _csv(kernels, _step_ends(roots)))
    return load_profile(target)


def collect_npu_profile(fn: Callable[[], object], *, path: Path, warmup: int = 2) -> Profile:
    """Call `fn` under torch_npu's profiler and copy its kernel_details.csv to `path`.

    Raises MisuseError if the profiler wrote no such file.
    """
    with tempfile.TemporaryDirectory() as folder:
        record_profile(fn, Path(folder), warmup=warmup)
        write_bytes(path, find_profile(Path(folder)).read_bytes())
    return load_profile(path)


@contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Keep kineto from writing to stderr; a level that the user has set stays.

    Kineto reads the variable once, when a process profiles for the first time.
    """
    if _KINETO_LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_KINETO_LOG_LEVEL] = _QUIET
    try:
        yield
    finally:
        del os.environ[_KINETO_LOG_LEVEL]


def _rows_of(event: Any, fused_namespaces: tuple[str, ...], roles: dict[str, Role]) -> list[_Kernel]:
    """Rows of an event and its children. `roles` caches the role of each name."""
    name = str(event.name)
    if name not in roles:
        roles[name] = op_role(name, fused_namespaces)
    role = roles[name]
    if role == "kernel":
        return [_kernel(event)]
    inside = [row for child in event.children for row in _rows_of(child, fused_namespaces, roles)]
    return inside or ([_kernel(event)] if role == "leaf" else [])


def _kernel(event: Any) -> _Kernel:
    _, fields = event.typed
    return _Kernel(
        name=str(event.name),
        start_ns=int(event.start_time_ns),
        duration_ns=int(event.duration_time_ns),
        thread=int(event.start_tid),
        operands=tuple(_operands(getattr(fields, "inputs", ()) or ())),
    )


def _operands(inputs: Any) -> Iterator[_Operand]:
    """Tensors among the inputs of an op, lists of tensors flattened; scalars have no `sizes`."""
    for value in inputs:
        if isinstance(value, (list, tuple)):
            yield from _operands(value)
        elif hasattr(value, "sizes"):
            yield _Operand(tuple(value.sizes), tuple(value.strides), getattr(value, "dtype", None))


def _step_ends(roots: list[Any]) -> list[tuple[int, int, str]]:
    """Start and end in ns, and id, of each step."""
    return [
        (int(root.start_time_ns), int(root.start_time_ns + root.duration_time_ns), root.name[len(_STEP) :])
        for root in roots
        if str(root.name).startswith(_STEP)
    ]


def _csv(kernels: list[_Kernel], steps: list[tuple[int, int, str]]) -> str:
    """The CSV text in torch_npu's style: a TAB after the start time, quotes inside shape cells."""
    threads: dict[int, int] = {}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURRENT_HEADER)
    for task, kernel in enumerate(kernels):
        stream = threads.setdefault(kernel.thread, len(threads))
        step = next((name for start, end, name in steps if start <= kernel.start_ns <= end), "")
        row = _row(kernel) | {"Step Id": step, "Task ID": str(task), "Stream ID": str(stream)}
        writer.writerow([row.get(column, _NONE) for column in CURRENT_HEADER])
    return text.getvalue()


def _row(kernel: _Kernel) -> dict[str, str]:
    """Cells of one kernel by column; absent ones are N/A."""
    inputs = kernel.operands
    outputs = inputs[:1] if kernel.name.endswith("_") else ()
    return {
        "Device_id": "0",
        "Name": kernel.name,
        "Type": _type(kernel),
        "Accelerator Core": CPU_CORE,
        "Start Time(us)": f"{kernel.start_ns // 1000}.{kernel.start_ns % 1000:03d}\t",
        "Duration(us)": f"{kernel.duration_ns / 1000:.3f}",
        **_operand_cells("Input", inputs),
        **_operand_cells("Output", outputs),
    }


def _operand_cells(side: str, operands: tuple[_Operand, ...]) -> dict[str, str]:
    if not operands:
        return {}
    shapes = ";".join(",".join(map(str, operand.shape)) for operand in operands)
    return {
        f"{side} Shapes": f'"{shapes}"',
        f"{side} Data Types": ";".join(dtype_word(operand.dtype) for operand in operands),
        f"{side} Formats": ";".join("ND" for _ in operands),
    }


def _type(kernel: _Kernel) -> str:
    if kernel.name != "aten::copy_" or len(kernel.operands) < 2:
        return cpu_op_type(kernel.name)
    target, source = kernel.operands[:2]
    contiguous = target.is_contiguous and source.is_contiguous
    return copy_type(target.dtype == source.dtype, contiguous)
