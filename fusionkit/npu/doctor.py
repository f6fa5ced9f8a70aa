"""The targets available on this machine, determined by activating them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch

from fusionkit.config import TARGETS, check_target
from fusionkit.encoding import Result
from fusionkit.errors import FusionKitError
from fusionkit.npu.dry.cache import is_set_up, soc_name
from fusionkit.npu.dry.wheel import NAMED_WHEEL
from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.target import Tell, use_target
from fusionkit.npu.versions import InstalledTorchNpu, fits, installed_torch_npu
from fusionkit.processes import ending, module_command


@dataclass(frozen=True, slots=True)
class TargetState(Result, without=("target",)):
    """Whether a target is available; `what`: its components, or what to do."""

    target: str
    available: bool
    what: str


def try_target(name: str, tell: Tell = lambda _: None) -> TargetState:
    """Activate target `name` in this process, for good, and fetch what it needs.

    Raises MisuseError for an unknown target.
    """
    installed = installed_torch_npu()
    check_target(name)
    try:
        facade = use_target(name, tell=tell)
    except FusionKitError as error:
        return TargetState(name, False, str(error))
    return TargetState(name, True, _rests_on(name, facade, installed))


def _rests_on(name: str, facade: TorchNpu, installed: InstalledTorchNpu | None) -> str:
    if name == "cpu":
        return f"{_torch_build()}, npu:: ops as CPU reference kernels"
    if name == "npu":
        return f"torch_npu {facade.__version__}, {_torch_build()}"
    return (
        f"torch_npu {facade.__version__} ({_origin(facade, installed)}) as {soc_name()} on a stand-in for CANN, {_torch_build()}:"
        " graphs, no numbers"
    )


def _torch_build() -> str:
    """torch's version and build."""
    builds = {"CUDA": torch.version.cuda, "ROCm": torch.version.hip, "XPU": torch.version.xpu}
    built_for = next((f"{name} {version} build" for name, version in builds.items() if version), "CPU build")
    return f"torch {torch.__version__} ({built_for})"


def _origin(facade: TorchNpu, installed: InstalledTorchNpu | None) -> str:
    """The source of the started torch_npu, and why the installed one was not used."""
    if installed is not None and Path(facade.__file__).resolve().is_relative_to(installed.root):
        return "installed"
    wheel = f"the wheel in {NAMED_WHEEL}" if os.environ.get(NAMED_WHEEL) else "cached wheel"
    return f"{wheel}{_beside(installed)}"


def _beside(installed: InstalledTorchNpu | None) -> str:
    """What there is to say of an installed torch_npu that npu-dry does not use."""
    if installed is None:
        return ""
    if fits(torch.__version__, installed.version):
        return f"; {installed.version} is installed"
    return f"; the installed one, {installed.version or 'of unknown version'}, is not of torch {torch.__version__}"


def target_states() -> list[TargetState]:
    """The state of every target, each activated in its own process; nothing is fetched."""
    return [_state(name) for name in TARGETS]


def _state(name: str) -> TargetState:
    if name == "npu" and installed_torch_npu() is None:
        return TargetState(
            name, False, "torch_npu is not installed; on a machine with an NPU, install CANN and it"
        )
    if name == "npu-dry" and not is_set_up():
        return TargetState(
            name,
            False,
            "not set up; `fusionkit doctor --target npu-dry` fetches torch-npu (45 MB) and tries it"
            f"{_beside(installed_torch_npu())}",
        )
    command = module_command("fusionkit", "doctor", "--target", name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return TargetState(name, False, f"trying it ended with {ending(done.returncode)}")
    said = (done.stdout.strip() or done.stderr.strip() or "no answer").splitlines()[-1]
    return TargetState(name, done.returncode == 0, said.partition(": ")[2] or said)
