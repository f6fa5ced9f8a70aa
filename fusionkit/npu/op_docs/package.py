"""Access to torch_npu's files: in a wheel, or in the folder of an installed package."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache_folder import WHEELS, cache_root
from fusionkit.npu.dry.wheel import NAMED_WHEEL, fitting_wheels, is_intact
from fusionkit.npu.versions import installed_torch_npu
from fusionkit.store import sha256_bytes, sha256_file


def find_package(wheel: Path | None = None) -> Path | None:
    """A wheel of torch_npu, or the folder that contains the package; None if this machine has neither.

    In this order: `wheel`, the one named by FUSIONKIT_TORCH_NPU_WHEEL, the installed package, the newest cached wheel
    for the installed torch. Raises MisuseError if a named one does not exist.
    """
    named = wheel or (Path(os.environ[NAMED_WHEEL]) if os.environ.get(NAMED_WHEEL) else None)
    if named is not None:
        path = named.expanduser().absolute()
        if not path.exists():
            raise MisuseError(f"{path}: no such wheel; {'--wheel' if wheel else NAMED_WHEEL} names it")
        return path
    installed = installed_torch_npu()
    if installed:
        return installed.root
    fitting = fitting_wheels(cache_root() / WHEELS, importlib.metadata.version("torch"))
    return next(filter(is_intact, fitting), None)


@dataclass(frozen=True, slots=True)
class PackageReader:
    """The files of one package by their names in the wheel ("torch_npu/version.py")."""

    path: Path
    archive: zipfile.ZipFile | None

    def read(self, name: str) -> bytes | None:
        """The contents of a file; None if the package lacks it."""
        if self.archive is None:
            file = self.path / name
            return file.read_bytes() if file.is_file() else None
        if name not in self.archive.NameToInfo:
            return None
        return self.archive.read(name)


@contextlib.contextmanager
def open_package(path: Path) -> Iterator[PackageReader]:
    """Open a wheel or a folder for reading. Raises MisuseError if it is neither, or damaged."""
    try:
        if path.is_dir():
            yield PackageReader(path, None)
        else:
            with zipfile.ZipFile(path) as archive:
                yield PackageReader(path, archive)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise MisuseError(
            f"{path}: cannot be read as a wheel of torch-npu ({error}); give a .whl file or an unpacked one"
        ) from error


def package_digest(path: Path, names: tuple[str, ...]) -> str:
    """SHA-256 of a wheel; for a folder, of the files in `names` and the Python files below the folders in `names`."""
    if not path.is_dir():
        return sha256_file(path)
    files = [
        file
        for name in names
        for file in (sorted((path / name).rglob("*.py")) if (path / name).is_dir() else [path / name])
        if file.is_file()
    ]
    listing = "".join(f"{file.relative_to(path).as_posix()} {sha256_file(file)}\n" for file in files)
    return sha256_bytes(listing.encode())
