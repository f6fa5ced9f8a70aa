"""Which target this process runs: `cpu` (reference kernels), `npu-dry` or `npu`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.library import define_cpu_ops

TARGETS = ("cpu", "npu-dry", "npu")


@dataclass(frozen=True, slots=True)
class _Active:
    name: str
    facade: TorchNpu
    libraries: tuple[torch.library.Library, ...]  # the ops exist as long as these do


# The one piece of state of the package. torch's dispatcher has a single npu:: namespace for the whole
# process, filled once and for good, so the target that filled it belongs to the process as well: this holder
# mirrors that fact and keeps the libraries alive. It has at most one entry; only `use_target` writes it.
_active: list[_Active] = []


def use_target(name: str) -> TorchNpu:
    """Provide the npu:: ops of target name and return the torch_npu facade over them.

    Once per process, before models and libraries that look for an NPU are imported; the same name again
    returns the same facade. Raises MisuseError for an unknown name, for a target that this version does not
    have, for a second target in one process, and where torch_npu's ops are defined already.
    """
    if name not in TARGETS:
        raise MisuseError(f"target {name!r} is unknown; choose one of {', '.join(TARGETS)}")
    if _active:
        if _active[0].name == name:
            return _active[0].facade
        raise MisuseError(
            f"target {name}: this process runs target {_active[0].name} already; one target per process,"
            " start another one"
        )
    if name != "cpu":
        raise MisuseError(f"target {name} is not available in this version of fusionkit; use --target cpu")
    libraries = tuple(define_cpu_ops())
    _active.append(_Active(name, TorchNpu(available=False), libraries))
    return _active[0].facade


def current_target() -> str | None:
    """Name of the target of this process, None before `use_target`."""
    return _active[0].name if _active else None


def current_facade() -> TorchNpu:
    """The facade of the target of this process. Raises MisuseError before `use_target`."""
    if not _active:
        raise MisuseError("no target is chosen in this process; call fusionkit.use_target('cpu') first")
    return _active[0].facade


def target_state(name: str) -> tuple[bool, str]:
    """Whether a target is available on this machine, and what that rests on or what to do.

    Raises MisuseError for an unknown target.
    """
    if name not in TARGETS:
        raise MisuseError(f"target {name!r} is unknown; choose one of {', '.join(TARGETS)}")
    if name == "cpu":
        return True, f"torch {torch.__version__}, npu:: ops as CPU reference kernels"
    return False, "not in this version of fusionkit; use target cpu"
