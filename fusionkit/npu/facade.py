"""torch_npu's Python face over the ops of the current target, without a module of that name."""

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

# What torch_npu shows to Python, each with all its overloads; the backward ops are reached through autograd.
FACADE_OPS: tuple[str, ...] = tuple(
    name for name in SCHEMAS if "." not in name and not name.endswith(("_backward", "_grad", "_grad_v2"))
)


@dataclass(frozen=True, slots=True)
class NpuDevice:
    """`torch_npu.npu` and `torch.npu`, as far as a pattern file asks it."""

    available: bool

    def is_available(self) -> bool:
        """Whether there is an NPU (False on target cpu)."""
        return self.available


class TorchNpu:
    """The facade: one attribute per op (`npu_rms_norm`, ...), each the op in torch.ops.npu, and `npu`.

    Over the real torch_npu (`module`) it has that module's other attributes as well, and lacks the ops that
    an older torch_npu does not have.
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
    """For the time of the `with`, `import torch_npu` gives the facade and `torch.npu.is_available()` answers.

    For importing a pattern file only; never while a model is imported or run (a torch_npu in sys.modules
    makes libraries choose NPU code). available is what `is_available()` says: True by default, since pattern
    files import torch_npu under that condition. sys.modules and torch are as before afterwards, whatever
    happens; a file that was imported keeps the module it got.
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
