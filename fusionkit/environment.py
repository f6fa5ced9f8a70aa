"""Versions of packages and system, read from package metadata without importing."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from pathlib import Path

import fusionkit

_PACKAGES = ("torch", "torch-npu", "transformers", "diffusers", "numpy", "safetensors", "papermill")


def environment() -> dict[str, str | None]:
    """Versions by name (None where a package is not installed), Python, system and machine included."""
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "fusionkit": fusionkit.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        **versions,
    }


def package_sha256() -> str:
    """SHA-256 over names and contents of fusionkit's own Python files and templates: tells two development states apart."""
    root = Path(fusionkit.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.glob("*/templates/*")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
