"""The facade: torch_npu's Python functions over the ops of the current target, without a module of that name."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.npu.schemas import SCHEMAS

# Public ops of torch_npu, each with all its overloads; backward ops are called by autograd only.
FACADE_OPS: tuple[str, ...] = tuple(
    name for name in SCHEMAS if "." not in name and not name.endswith(("_backward", "_grad", "_grad_v2"))
)


@dataclass(frozen=True, slots=True)
class NpuDevice:
    """The part of `torch_npu.npu` and `torch.npu` that pattern files use."""

    available: bool

    def is_available(self) -> bool:
        """Whether there is an NPU (False on target cpu)."""
        return self.available


class TorchNpu:
    """The facade: one attribute per op (`npu_rms_norm`, ...), the op in torch.ops.npu, and `npu`.

    With the real torch_npu (`module`) it has that module's other attributes as well, and lacks ops that an older
    torch_npu does not have.
    """

    def __init__(self, *, available: bool, module: types.ModuleType | None = None) -> None:
        self.npu = NpuDevice(available)
        self._module = module
        for name in FACADE_OPS:
            if module is None or hasattr(torch.ops.npu, name):
                setattr(self, name, getattr(torch.ops.npu, name))

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__.get("_module")
        if module is not None:
            return getattr(module, name)
        raise AttributeError(f"torch_npu facade has no {name!r}; it has npu and {', '.join(FACADE_OPS)}")

    def __dir__(self) -> list[str]:
        return ["npu", *FACADE_OPS]


def torch_npu_module(facade: TorchNpu, *, available: bool) -> types.ModuleType:
    """A module named torch_npu with the attributes of facade and a `__spec__`, as an imported one has."""
    module = types.ModuleType("torch_npu", "Stands in for torch_npu while a pattern file is imported.")
    module.__spec__ = importlib.machinery.ModuleSpec("torch_npu", loader=None)
    for name in FACADE_OPS:
        setattr(module, name, getattr(facade, name))
    module.npu = NpuDevice(available)  # type: ignore[attr-defined]
    module.__getattr__ = facade.__getattr__  # type: ignore[method-assign]
    return module


_MISSING = object()


@contextmanager
def standing_in(facade: TorchNpu, *, available: bool = True) -> Iterator[types.ModuleType]:
    """Inside the block, `import torch_npu` returns the facade, and `torch.npu.is_available()` returns `available`.

    Only for importing a pattern file, never while a model is imported or run: a torch_npu in sys.modules makes
    libraries choose NPU code. `available` is True by default, since pattern files import torch_npu under that
    condition. sys.modules and torch are restored on exit; an imported file keeps its module.
    """
    real = facade.__dict__.get("_module")
    if real is not None:  # torch_npu itself is imported, and stays
        yield real
        return
    module = torch_npu_module(facade, available=available)
    replaced = sys.modules.get("torch_npu", _MISSING)
    replaced_npu = vars(torch).get("npu", _MISSING)
    sys.modules["torch_npu"] = module
    torch.npu = module.npu  # type: ignore[attr-defined]
    try:
        yield module
    finally:
        _restore(sys.modules, "torch_npu", replaced)
        _restore(vars(torch), "npu", replaced_npu)


def _restore(names: dict[str, Any], name: str, value: object) -> None:
    if value is _MISSING:
        names.pop(name, None)
    else:
        names[name] = value
