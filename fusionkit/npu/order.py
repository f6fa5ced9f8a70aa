"""Import order: the target is activated first, since some libraries decide at import whether there is an NPU."""

from __future__ import annotations

import sys

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.versions import PACKAGE, installed_torch_npu
from fusionkit.processes import BACKEND_AUTOLOAD

# Libraries that look for torch_npu when they are imported, and keep that decision for their models.
DECIDE_AT_IMPORT = ("diffusers", "transformers", "accelerate")


def refuse_late_activation(target: str, *, torch_npu_may_be_there: bool = False) -> None:
    """Raise MisuseError if a library imported earlier would make graphs on `target` wrong.

    `torch_npu_may_be_there`: whether an already imported torch_npu is acceptable.
    """
    imported = sys.modules.get(PACKAGE) is not None
    if torch_npu_may_be_there and imported:
        return
    early = _early_library()
    if early:
        raise MisuseError(
            f"target {target}: {early} was imported before it and has decided that there is no NPU;"
            " start a new process and choose the target first"
        )
    if imported:
        raise _torch_npu_is_imported(target)
    taken = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("npu::"))
    if taken:
        raise MisuseError(
            f"target {target}: {taken[0]} is defined in this process already, and torch_npu cannot be"
            " imported beside it; start a new process and choose the target first"
        )


def refuse_visible_torch_npu() -> None:
    """Raise MisuseError if this process of target cpu has imported torch_npu, or a library that saw it installed."""
    if sys.modules.get(PACKAGE) is not None:
        raise _torch_npu_is_imported("cpu")
    early = _early_library()
    if early and PACKAGE not in sys.modules and installed_torch_npu() is not None:
        raise MisuseError(
            f"target cpu: {early} was imported before it and has seen the installed torch_npu;"
            " start a new process and choose the target first"
        )


def hide_torch_npu() -> None:
    """Make `import torch_npu` fail and `find_spec("torch_npu")` return None in this process.

    sys.modules[name] = None has that effect (Python reference, "The module cache").
    """
    sys.modules[PACKAGE] = None  # type: ignore[assignment]


def _early_library() -> str | None:
    return next((name for name in DECIDE_AT_IMPORT if name in sys.modules), None)


def _torch_npu_is_imported(target: str) -> MisuseError:
    return MisuseError(
        f"target {target}: torch_npu is imported in this process already; start a new one with {BACKEND_AUTOLOAD}=0"
    )
