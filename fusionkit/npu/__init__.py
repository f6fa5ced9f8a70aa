"""The npu:: ops of torch_npu, and the targets that provide them.

`fusionkit.npu.torch_npu` is the facade of the current target; `use_target` defines the ops.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "torch_npu":
        return importlib.import_module("fusionkit.npu.target").current_facade()
    raise AttributeError(f"module 'fusionkit.npu' has no attribute {name!r}")
