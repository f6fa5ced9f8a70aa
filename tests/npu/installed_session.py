"""Script: what the libraries say of an NPU in a process of target cpu, and whether a model of theirs can be built."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

from dry_processes import answer, outcome, raised

import fusionkit.npu  # before torch, as a notebook's first cell does
from fusionkit.npu.target import use_target
from fusionkit.npu.versions import installed_torch_npu

installed = installed_torch_npu()
seen: dict[str, object] = {"installed": installed is not None and installed.version}
sys.modules["torch_npu"] = types.ModuleType("torch_npu")
seen["imported"] = outcome(lambda: use_target("cpu"))
del sys.modules["torch_npu"]
decided = types.ModuleType("diffusers.utils.import_utils")
decided.is_torch_npu_available = lambda: True  # type: ignore[attr-defined]
sys.modules[decided.__name__] = decided
seen["early"] = outcome(lambda: use_target("cpu"))
del sys.modules[decided.__name__]
seen["left"] = "torch_npu" in sys.modules

import transformers  # noqa: E402 - a library that has not asked yet may come before the target

facade = use_target("cpu")
seen["again"] = use_target("cpu") is facade
seen["spec"] = importlib.util.find_spec("torch_npu") is None
seen["import"] = raised(lambda: __import__("torch_npu"))

import diffusers.utils  # noqa: E402
import transformers.utils  # noqa: E402

libraries = [diffusers.utils.is_torch_npu_available, transformers.utils.is_torch_npu_available]
if importlib.util.find_spec("accelerate"):
    libraries.append(importlib.import_module("accelerate.utils").is_npu_available)
seen["libraries"] = [available() for available in libraries]

from fusionkit.subjects.load import load_subject  # noqa: E402

seen["models"] = [type(load_subject(name).model).__name__ for name in ("llama", "flux")]
seen["facade"] = fusionkit.npu.torch_npu is facade
answer(seen)
