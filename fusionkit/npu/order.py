"""Import order: the target is activated first, since some libraries decide at import whether there is an NPU."""

from __future__ import annotations

import sys
import types

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.versions import PACKAGE
from fusionkit.processes import BACKEND_AUTOLOAD

# The function by which each says whether there is an NPU, asked again once torch_npu is hidden.
_NPU_TESTS = {
    "diffusers": ("diffusers.utils.import_utils", "is_torch_npu_available"),
    "transformers": ("transformers.utils.import_utils", "is_torch_npu_available"),
    "accelerate": ("accelerate.utils.imports", "is_npu_available"),
}


def refuse_late_activation(target: str, *, torch_npu_may_be_there: bool = False) -> None:
    """Raise MisuseError if a library imported earlier would make graphs on `target` wrong.

    `torch_npu_may_be_there`: whether an already imported torch_npu is acceptable.
    """
    imported = sys.modules.get(PACKAGE) is not None
    if torch_npu_may_be_there and imported:
        return
    early = next((name for name in _NPU_TESTS if name in sys.modules), None)
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


def hide_torch_npu() -> None:
    """Make `import torch_npu` fail and `find_spec("torch_npu")` return None in this process.

    A name without a module in sys.modules is Python's own way to say so (reference, "The module cache").
    Raises MisuseError, hiding nothing, where torch_npu is imported already, or a library goes on to see it.
    """
    if sys.modules.get(PACKAGE) is not None:
        raise _torch_npu_is_imported("cpu")
    sys.modules[PACKAGE] = None  # type: ignore[assignment]
    for library, (module, function) in _NPU_TESTS.items():
        if module in sys.modules and _sees_npu(sys.modules[module], function):
            show_torch_npu()
            raise MisuseError(
                f"target cpu: {library} was imported before it and has seen the installed torch_npu; call"
                f" fusionkit.use_target('cpu') before importing {library}"
            )


def show_torch_npu() -> None:
    """Take back `hide_torch_npu`."""
    sys.modules.pop(PACKAGE, None)


def _sees_npu(module: types.ModuleType, function: str) -> bool:
    try:
        return bool(getattr(module, function)())
    except ImportError:  # it goes on to import torch_npu, since it has seen it before
        return True


def _torch_npu_is_imported(target: str) -> MisuseError:
    return MisuseError(
        f"target {target}: torch_npu is imported in this process already; start a new one with {BACKEND_AUTOLOAD}=0"
    )
