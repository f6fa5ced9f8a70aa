"""The user's cache of the npu-dry target: wheels, unpacked packages, compiled stand-ins.

Everything appears under its final name whole or not at all; one process at a time writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache_folder import FOLDERS, PACKAGES
from fusionkit.npu.dry.cache_folder import STANDINS as STANDINS
from fusionkit.npu.dry.cache_folder import WHEELS as WHEELS
from fusionkit.npu.dry.cache_folder import cache_root as cache_root
from fusionkit.npu.dry.standin import c_source, compile_standin, compiler, is_compiled
from fusionkit.npu.dry.symbols import wanted_symbols
from fusionkit.npu.dry.unpacked import is_whole_still
from fusionkit.npu.dry.wheel import (
    cached_wheel,
    check_platform,
    check_wheel,
    fetch_wheel,
    fitting_wheels,
    unpack,
)
from fusionkit.npu.versions import InstalledTorchNpu, fits, installed_torch_npu, refuse_untried_torch
from fusionkit.store import sha256_file

DEFAULT_SOC = "Ascend910B1"
NAMED_WHEEL = "FUSIONKIT_TORCH_NPU_WHEEL"

# The modules of this package that decide what a compiled stand-in is.
_MAKERS = ("behaviours", "elf", "standin", "symbols")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What activation needs: the folder for sys.path, the stand-in's libraries, torch_npu's version and the SoC."""

    package_root: Path
    libraries: tuple[Path, ...]
    version: str
    soc_name: str


def soc_name() -> str:
    """The SoC that the stand-in says it is: FUSIONKIT_SOC, default Ascend910B1."""
    return os.environ.get("FUSIONKIT_SOC") or DEFAULT_SOC


def cache_bytes() -> int:
    """Bytes that the cache takes."""
    total = 0
    for path in (path for name in FOLDERS for path in (cache_root() / name).rglob("*")):
        with contextlib.suppress(OSError):  # another process may tidy up meanwhile
            total += path.lstat().st_size if path.is_file() else 0
    return total


def clear_cache() -> None:
    """Remove what this target put into its cache. Raises MisuseError where the cache cannot be removed."""
    with _locked():
        for path in (cache_root() / name for name in FOLDERS):
            try:
                if path.exists():
                    shutil.rmtree(path)
            except OSError as error:
                raise MisuseError(f"{path} cannot be removed ({error.strerror or error})") from error


def is_set_up() -> bool:
    """Whether a torch_npu is there for `prepare`, named, installed or cached, so that it fetches nothing."""
    if os.environ.get(NAMED_WHEEL) or _fitting_installed():
        return True
    return bool(fitting_wheels(cache_root() / WHEELS, torch.__version__))


def prepare(tell: Tell = lambda _: None) -> Prepared:
    """Have torch_npu's files, and the stand-in compiled for them in the cache; `tell` hears the slow steps.

    The files are those of the wheel that FUSIONKIT_TORCH_NPU_WHEEL names, else of the installed torch_npu where it is
    built for this torch, else of a wheel in the cache. What is there and whole is used; a changed or half-made entry is
    made again. Raises MisuseError in one line for the platform, the version of torch, the compiler, the wheel or the
    cache.
    """
    check_platform()
    refuse_untried_torch("npu-dry", torch.__version__)
    compiler()
    with _locked():
        root = cache_root()
        for leftover in root.glob("*/.making-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        package_root, version = _package(root, tell)
        libraries = _standin(root / STANDINS, package_root, version, tell)
    return Prepared(package_root, libraries, version, soc_name())


def _package(root: Path, tell: Tell) -> tuple[Path, str]:
    """The folder that holds torch_npu, and its version."""
    installed = _fitting_installed()
    if installed is not None and not os.environ.get(NAMED_WHEEL):
        return installed.root, installed.version
    wheel = _wheel(root / WHEELS, tell)
    package_root = root / PACKAGES / _key(wheel.stem)
    if not is_whole_still(package_root, wheel):
        tell(f"unpacking {wheel.name}")
        _make(package_root, lambda folder: unpack(wheel, folder))
    return package_root, str(check_wheel(wheel, torch.__version__))


def _fitting_installed() -> InstalledTorchNpu | None:
    installed = installed_torch_npu()
    return installed if installed and fits(torch.__version__, installed.version) else None


def _wheel(folder: Path, tell: Tell) -> Path:
    named = os.environ.get(NAMED_WHEEL)
    if named:
        path = Path(named).expanduser().absolute()
        check_wheel(path, torch.__version__)
        return path
    found = cached_wheel(folder, torch.__version__)
    if found is None:
        tell(f"fetching the torch-npu wheel for torch {torch.__version__} (about 45 MB)")
        found = fetch_wheel(folder, torch.__version__)
    return found


def _standin(folder: Path, package_root: Path, version: str, tell: Tell) -> tuple[Path, ...]:
    """The compiled stand-in for this package, SoC, torch and the modules that make it."""
    made_by = [sha256_file(Path(__file__).with_name(f"{name}.py")) for name in _MAKERS]
    recipe = f"{made_by}{torch.__version__}{Path(torch.__file__)}{package_root}"
    key = _key(f"{version}-{soc_name()}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}")
    home = folder / key
    if not is_compiled(home):
        tell(f"compiling the stand-in for {soc_name()}")
        wanted = wanted_symbols(package_root / "torch_npu")
        source = c_source(wanted, soc_name())
        _make(home, lambda made: compile_standin(source, wanted.sonames, made))
    return tuple(sorted(home.glob("*.so")))


def _key(name: str) -> str:
    return f"{name}-{sys.implementation.cache_tag}-{platform.machine()}"


def _make(final: Path, fill: Callable[[Path], None]) -> None:
    """Fill a new folder beside `final`, then give it that name."""
    final.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=final.parent))
    try:
        fill(making)
        shutil.rmtree(final, ignore_errors=True)
        making.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)


_LOCK = ".lock"


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the cache for this process. Raises MisuseError where it cannot be written."""
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / _LOCK)
        lock.acquire()
    except OSError as error:
        raise MisuseError(
            f"cache {root} cannot be written ({error.strerror or error}); name another folder in FUSIONKIT_CACHE"
        ) from error
    try:
        yield
    finally:
        lock.release()
