"""Script: activation of npu-dry and npu after something has decided what their graphs would look like.

The first argument names a library to import: diffusers or transformers.
"""

from __future__ import annotations

import importlib
import sys
import types

import torch
from dry_processes import answer, outcome

from fusionkit.npu.target import current_target, use_target


def tried() -> dict[str, list[str]]:
    return {name: outcome(lambda: use_target(name)) for name in ("npu-dry", "npu")}  # noqa: B023


seen: dict[str, object] = {}
sys.modules["torch_npu"] = types.ModuleType("torch_npu")
seen["torch_npu"] = outcome(lambda: use_target("npu-dry"))
del sys.modules["torch_npu"]

library = torch.library.Library("npu", "FRAGMENT")
library.define("npu_of_mine(Tensor x) -> Tensor")
seen["op"] = tried()
library._destroy()

importlib.import_module(sys.argv[1])
seen["library"] = tried()
seen["target"] = current_target()
seen["left"] = [hasattr(torch, "npu"), "torch_npu" in sys.modules]
seen["cpu"] = use_target("cpu").npu.is_available()
seen["after cpu"] = tried()
answer(seen)
