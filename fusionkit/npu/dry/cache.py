"""The user's cache of the npu-dry target: wheels, unpacked packages, compiled stand-ins.

Entries appear under their final name atomically; one process at a time writes.
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
from fusionkit.npu.dry.cache_folder import FOLDERS, PACKAGES, STANDINS, WHEELS, cache_root
from fusionkit.npu.dry.standin import c_source, compile_standin, compiler, is_compiled
from fusionkit.npu.dry.symbols import wanted_symbols
from fusionkit.npu.dry.wheel import (
    NAMED_WHEEL,
    cached_wheel,
    check_platform,
    check_wheel,
    fetch_wheel,
    fitting_wheels,
    is_whole_still,
    unpack,
)
from fusionkit.npu.versions import PACKAGE, InstalledTorchNpu, fits, installed_torch_npu, refuse_untried_torch
from fusionkit.store import sha256_file

DEFAULT_SOC = "Ascend910B1"

# The modules of this package that determine the compiled stand-in.
_MAKERS = ("behaviours", "standin", "symbols")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Input of activation: the folder for sys.path, the stand-in's libraries, torch_npu's version and the SoC."""

    package_root: Path
    libraries: tuple[Path, ...]
    version: str
    soc_name: str


def soc_name() -> str:
    """The SoC name that the stand-in reports: FUSIONKIT_SOC, default Ascend910B1."""
    return os.environ.get("FUSIONKIT_SOC") or DEFAULT_SOC


def cache_bytes() -> int:
    """Size of the cache in bytes."""
    total = 0
    for path in (path for name in FOLDERS for path in (cache_root() / name).rglob("*")):
        with contextlib.suppress(OSError):  # another process may remove files meanwhile
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
    """Whether `prepare` has a torch_npu (named, installed or cached) and needs not fetch one."""
    if os.environ.get(NAMED_WHEEL) or _fitting_installed():
        return True
    return bool(fitting_wheels(cache_root() / WHEELS, torch.__version__))


def prepare(tell: Tell = lambda _: None) -> Prepared:
    """Provide torch_npu's files, and compile the stand-in for them into the cache; `tell` is called before slow steps.

    torch_npu is the wheel named by FUSIONKIT_TORCH_NPU_WHEEL, else the installed one if it is built for this torch,
    else a cached or fetched wheel. Complete cache entries are reused; changed or incomplete ones are rebuilt. Raises
    MisuseError for an unsuitable platform, torch version, compiler, wheel or cache.
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
    """The folder that contains torch_npu, and its version."""
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
    if installed is None or not fits(torch.__version__, installed.version):
        return None
    return installed if list((installed.root / PACKAGE).glob("_C*.so")) else None


def _wheel(folder: Path, tell: Tell) -> Path:
    named = os.environ.get(NAMED_WHEEL)
    if named:
        path = Path(named).expanduser().absolute()
        check_wheel(path, torch.__version__)
        return path
    wheel = cached_wheel(folder, torch.__version__)
    if wheel is None:
        tell(f"fetching the torch-npu wheel for torch {torch.__version__} (about 45 MB)")
        wheel = fetch_wheel(folder, torch.__version__)
    return wheel


def _standin(folder: Path, package_root: Path, version: str, tell: Tell) -> tuple[Path, ...]:
    """The compiled stand-in, keyed by package, SoC, torch and the modules that generate it."""
    made_by = [sha256_file(Path(__file__).with_name(f"{name}.py")) for name in _MAKERS]
    package = [(path.name, path.stat().st_size) for path in sorted(package_root.glob("torch_npu/lib/*.so"))]
    recipe = f"{made_by}{torch.__version__}{Path(torch.__file__)}{package_root}{package}"
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
    """Fill a temporary folder beside `final`, then rename it."""
    final.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".making-", dir=final.parent))
    try:
        fill(making)
        shutil.rmtree(final, ignore_errors=True)
        making.rename(final)
    finally:
        shutil.rmtree(making, ignore_errors=True)


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Lock the cache for this process. Raises MisuseError if it cannot be written."""
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / ".lock")
        lock.acquire()
    except OSError as error:
        raise MisuseError(
            f"cache {root} cannot be written ({error.strerror or error}); name another folder in FUSIONKIT_CACHE"
        ) from error
    try:
        yield
    finally:
        lock.release()
