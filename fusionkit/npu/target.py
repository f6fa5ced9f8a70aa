"""Which target this process runs: `cpu` (reference kernels), `npu-dry` or `npu`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fusionkit.config import check_target
from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.library import add_cpu_kernels, define_cpu_ops, define_kit_ops
from fusionkit.npu.order import hide_torch_npu, show_torch_npu

# The torch device of each target.
DEVICES = {"cpu": "cpu", "npu-dry": "npu", "npu": "npu"}

# Targets that compute values; npu-dry has graphs, shapes and dtypes only.
WITH_VALUES = ("cpu", "npu")

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Active:
    name: str
    facade: TorchNpu
    kept: tuple[Any, ...]  # the ops exist as long as these libraries do


# The only global state of the package. torch's dispatcher has one npu:: namespace per process, defined once for good,
# so that a process has one target. This list keeps the target's libraries alive; it has at most one entry, written by
# `use_target` only.
_active: list[_Active] = []


def use_target(name: str, *, tell: Tell = lambda _: None) -> TorchNpu:
    """Provide the npu:: ops of target name and return the torch_npu facade over them.

    Once per process, before models and libraries that look for an NPU are imported; the same name again returns
    the same facade. `tell` is called before each slow step. Raises MisuseError for an unknown or unavailable target,
    for a second target in one process, and for activation after such an import.
    """
    check_target(name)
    if _active:
        if _active[0].name == name:
            return _active[0].facade
        raise MisuseError(
            f"target {name}: this process runs target {_active[0].name} already; one target per process,"
            " start another one"
        )
    _active.append(_ACTIVATE[name](tell))
    return _active[0].facade


def current_target() -> str | None:
    """Name of the target of this process, None before `use_target`."""
    return _active[0].name if _active else None


def current_facade() -> TorchNpu:
    """The facade of the target of this process. Raises MisuseError before `use_target`."""
    if not _active:
        raise MisuseError("no target is chosen in this process; call fusionkit.use_target('cpu') first")
    return _active[0].facade


def current_device() -> str:
    """The torch device of models on this process's target; cpu before `use_target`."""
    return DEVICES[current_target() or "cpu"]


def shows_values(target: str | None) -> bool:
    """Whether a target computes values; npu-dry has fake tensors only."""
    return (target or "cpu") in WITH_VALUES


def _activate_cpu(_tell: Tell) -> _Active:
    hide_torch_npu()
    try:
        libraries = tuple(define_cpu_ops())
    except MisuseError:
        show_torch_npu()
        raise
    return _Active("cpu", TorchNpu(available=False), libraries)


def _activate_dry(tell: Tell) -> _Active:
    from fusionkit.npu.dry.starting import activate

    module, libraries = activate(tell)
    kept = (*libraries, *add_cpu_kernels(), *define_kit_ops())
    return _Active("npu-dry", TorchNpu(available=True, module=module), kept)


def _activate_npu(_tell: Tell) -> _Active:
    from fusionkit.npu.real import import_torch_npu

    module = import_torch_npu()
    kept = (*add_cpu_kernels(), *define_kit_ops())
    return _Active("npu", TorchNpu(available=True, module=module), kept)


_ACTIVATE: dict[str, Callable[[Tell], _Active]] = {
    "cpu": _activate_cpu,
    "npu-dry": _activate_dry,
    "npu": _activate_npu,
}
