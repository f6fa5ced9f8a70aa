"""Supported pairs of torch and torch_npu, and the installed torch_npu."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from fusionkit.errors import MisuseError

# Minor releases of torch, each with the torch_npu of the same release. pyproject.toml has the same range.
TRIED = ("2.13", "2.14")

PACKAGE = "torch_npu"


@dataclass(frozen=True, slots=True)
class InstalledTorchNpu:
    """An installed torch_npu: the folder on sys.path that holds the package, and its version ("" if not known)."""

    root: Path
    version: str


def installed_torch_npu() -> InstalledTorchNpu | None:
    """The torch_npu that `import torch_npu` would load, located without importing; None without one."""
    spec = importlib.machinery.PathFinder.find_spec(PACKAGE)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    root = Path(spec.origin).resolve().parents[1]
    metadata = next(iter(importlib.metadata.distributions(name=PACKAGE, path=[str(root)])), None)
    return InstalledTorchNpu(root, "" if metadata is None else metadata.version)


def fits(torch_version: str, torch_npu_version: str) -> bool:
    """Whether a torch_npu is built for this torch: equal X.Y.Z."""
    try:
        return Version(torch_version).release[:3] == Version(torch_npu_version).release[:3]
    except InvalidVersion:
        return False


def refuse_untried_torch(target: str, torch_version: str) -> None:
    """Raise MisuseError if this version of torch is not supported."""
    minor = ".".join(map(str, Version(torch_version).release[:2]))
    if minor not in TRIED:
        raise MisuseError(
            f"target {target}: torch {torch_version} was not tried with torch_npu; install torch and torch_npu of"
            f" {' or '.join(TRIED)}"
        )


def refuse_unfit_pair(target: str, torch_version: str, installed: InstalledTorchNpu | None) -> None:
    """Raise MisuseError if torch and the installed torch_npu do not fit together, for `target`."""
    refuse_untried_torch(target, torch_version)
    if installed is not None and installed.version and not fits(torch_version, installed.version):
        raise MisuseError(
            f"target {target}: torch_npu {installed.version} is installed beside torch {torch_version}, and is not"
            " built for it; install a pair of one release"
        )
