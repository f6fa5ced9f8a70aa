"""The folder of the kit's torch_npu cache; imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

WHEELS, PACKAGES, STANDINS, OP_DOCS, SCANS = FOLDERS = ("wheels", "packages", "stand-ins", "op-docs", "scans")


def cache_root() -> Path:
    """FUSIONKIT_CACHE, or the user's cache folder; absolute, without links."""
    named = os.environ.get("FUSIONKIT_CACHE")
    return (Path(named).expanduser() if named else user_cache_path("fusionkit")).resolve()
