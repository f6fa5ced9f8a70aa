"""Profile a function on a real NPU with torch_npu's profiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from fusionkit.npu.real import record_profile
from fusionkit.profile.kernel_records import Profile
from fusionkit.profile.profile_file import find_profile, load_profile
from fusionkit.store import write_bytes


def collect_npu_profile(fn: Callable[[], object], *, path: Path, warmup: int = 2) -> Profile:
    """Call `fn` under torch_npu's profiler and copy its kernel_details.csv to `path`.

    Raises MisuseError if the profiler wrote no such file.
    """
    with tempfile.TemporaryDirectory() as folder:
        record_profile(fn, Path(folder), warmup=warmup)
        write_bytes(path, find_profile(Path(folder)).read_bytes())
    return load_profile(path)
