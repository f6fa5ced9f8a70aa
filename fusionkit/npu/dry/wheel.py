"""The torch_npu wheel for the installed torch: lookup, pip download, check, unpacking, check of what was unpacked."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.store import sha256_file, write_text

NAMED_WHEEL = "FUSIONKIT_TORCH_NPU_WHEEL"
MACHINES = ("x86_64", "aarch64")


def check_platform() -> None:
    """Raise MisuseError if there is no torch_npu wheel for the system or machine."""
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        raise MisuseError(
            f"target npu-dry runs on Linux x86_64 and aarch64, this is {platform.system()} {platform.machine()};"
            " use the container of the README"
        )


def check_wheel(path: Path, torch_version: str) -> Version:
    """The version of a wheel. Raises MisuseError if it is not for this torch, Python or machine."""
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise MisuseError(f"{path}: not a wheel's name ({error})") from error
    wanted = Version(torch_version).release[:3]
    if name != "torch-npu":
        raise MisuseError(f"{path}: a wheel of {name}, not of torch-npu")
    if version.release[:3] != wanted:
        raise MisuseError(
            f"{path}: torch-npu {version} does not fit the installed torch {torch_version};"
            f" give a wheel of torch-npu {'.'.join(map(str, wanted))}"
        )
    if not tags & set(sys_tags()):
        raise MisuseError(
            f"{path}: not for Python {sys.version_info.major}.{sys.version_info.minor} on {platform.machine()}"
        )
    if not path.is_file():
        raise MisuseError(f"{path}: no such file; {NAMED_WHEEL} names it")
    return version


def cached_wheel(folder: Path, torch_version: str) -> Path | None:
    """The newest intact wheel in `folder` that fits; changed ones are removed."""
    for path in fitting_wheels(folder, torch_version):
        if is_intact(path):
            return path
        path.unlink(missing_ok=True)
    return None


def is_intact(wheel: Path) -> bool:
    """Whether a cached wheel has the SHA-256 that was stored beside it when it was fetched."""
    recorded = wheel.with_name(wheel.name + ".sha256")
    return recorded.is_file() and recorded.read_text("utf-8").strip() == sha256_file(wheel)


def fitting_wheels(folder: Path, torch_version: str) -> list[Path]:
    """The wheels in `folder` for this torch, Python and machine, by file name, newest first."""
    fitting: list[tuple[Version, Path]] = []
    for path in folder.glob("*.whl"):
        with contextlib.suppress(MisuseError):
            fitting.append((check_wheel(path, torch_version), path))
    return [path for _, path in sorted(fitting, reverse=True)]


def fetch_wheel(folder: Path, torch_version: str) -> Path:
    """Fetch the newest torch-npu of torch's X.Y.Z with pip, in pip's own configuration, into `folder`.

    pip checks the index's hash; the file's SHA-256 is stored beside it. Raises MisuseError with pip's error.
    """
    release = ".".join(map(str, Version(torch_version).release[:3]))
    incoming = folder / ".incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(incoming)]
    command += [f"torch-npu=={release}.*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise MisuseError(f"target npu-dry: pip does not run ({error})") from error
    wheels = sorted(incoming.glob("*.whl"))
    if done.returncode or not wheels:
        shutil.rmtree(incoming, ignore_errors=True)
        raise MisuseError(
            f"target npu-dry: pip finds no torch-npu {release} ({_reason(done.stderr)}); check the network and pip's"
            f" index, or name a wheel in {NAMED_WHEEL}"
        )
    write_text(folder / f"{wheels[0].name}.sha256", sha256_file(wheels[0]) + "\n")
    kept = wheels[0].replace(folder / wheels[0].name)
    shutil.rmtree(incoming, ignore_errors=True)
    return kept


def _reason(said: str) -> str:
    """pip's error in one line; "no matching distribution" can also mean an unreachable index."""
    if "connection" in said.lower() or "timed out" in said.lower():
        return "the package index does not answer"
    errors = [line.partition("ERROR:")[2].strip() for line in said.splitlines() if line.startswith("ERROR:")]
    if errors:
        return errors[-1]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def unpack(wheel: Path, folder: Path) -> None:
    """Unpack a wheel into the new folder. Raises RunBrokenError if the disk is full or the wheel damaged."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RunBrokenError(f"{wheel}: cannot be unpacked into {folder} ({error})") from error


def is_whole_still(folder: Path, wheel: Path) -> bool:
    """`is_whole`, which reads some 170 MB, unless it has said so of these files before.

    Beside the folder stands what its files were like when they were hashed: size, inode, and times of change.
    """
    record = folder.with_name(f"{folder.name}.hashed")
    state = _state(folder, wheel)
    with contextlib.suppress(OSError):
        if state and record.read_text("utf-8") == state:
            return True
    if not is_whole(folder, wheel):
        return False
    write_text(record, state)
    return True


def _state(folder: Path, wheel: Path) -> str:
    """A digest of what the file system says of the wheel and of each module and library; "" where it says nothing."""
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    digest = hashlib.sha256()
    try:
        for path in [wheel, *sorted(file for file in files if file.name.endswith((".so", ".py", "RECORD")))]:
            of = os.stat(path)
            digest.update(f"{path}\0{of.st_size}\0{of.st_ino}\0{of.st_mtime_ns}\0{of.st_ctime_ns}\n".encode())
    except OSError:
        return ""
    return digest.hexdigest()


def is_whole(folder: Path, wheel: Path) -> bool:
    """Whether `folder` is this wheel unpacked: equal RECORD, and the RECORD's hashes for all libraries and modules."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
            record = archive.read(name)
        if (folder / name).read_bytes() != record:
            return False
        rows = [row for row in csv.reader(io.StringIO(record.decode("utf-8"))) if len(row) == 3]
    except (OSError, zipfile.BadZipFile, StopIteration, UnicodeDecodeError):
        return False
    checked = [(folder / name, digest) for name, digest, _ in rows if name.endswith((".so", ".py"))]
    return bool(checked) and all(_has_digest(path, digest) for path, digest in checked)


def _has_digest(path: Path, recorded: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").digest()
    return recorded == "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
