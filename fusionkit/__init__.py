"""Why a PyTorch fusion for the Ascend NPU does or does not happen, and the proof that it is right.

The public names load on first use, so that `import fusionkit` imports neither torch nor torch_npu.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

# Keep a later `import torch` from loading an installed torch_npu: the target decides whether it is loaded, and without
# CANN `import torch` would fail. A value that the user has set stays.
if "torch" not in sys.modules:
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

_PUBLIC = {
    "use_target": "fusionkit.npu.target",
    "load_subject": "fusionkit.subjects.load",
    "capture_graphs": "fusionkit.capture.capturing",
    "hits": "fusionkit.match.uncounted",
    "explain": "fusionkit.match.explanation.missing",
    "repair": "fusionkit.match.repairing.repair",
    "compare_outputs": "fusionkit.numeric.compare",
    "load_profile": "fusionkit.profile.profile_file",
    "diff_profiles": "fusionkit.profile.diff",
    "scan": "fusionkit.identify.scan",
    "verify_evidence": "fusionkit.evidence.verify",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fusionkit' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
