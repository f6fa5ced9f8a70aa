"""Which targets this machine has, found out by trying them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.errors import FusionKitError
from fusionkit.npu.dry.cache import is_set_up, soc_name
from fusionkit.npu.target import TARGETS, Tell, use_target


@dataclass(frozen=True, slots=True)
class TargetState:
    """Whether a target is available, and what that rests on or what to do."""

    target: str
    available: bool
    what: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"available": self.available, "what": self.what}


def try_target(name: str, tell: Tell = lambda _: None) -> TargetState:
    """Activate target `name` in this process, which then belongs to it, fetching what it needs.

    Raises MisuseError for an unknown target.
    """
    try:
        facade = use_target(name, tell=tell)
    except FusionKitError as error:
        if name not in TARGETS:
            raise
        return TargetState(name, False, str(error))
    version = getattr(facade, "__version__", "") if name != "cpu" else ""
    told = {
        "cpu": f"torch {torch.__version__}, npu:: ops as CPU reference kernels",
        "npu-dry": f"torch_npu {version} as {soc_name()} on a stand-in for CANN: graphs, no numbers",
        "npu": f"torch_npu {version}",
    }
    return TargetState(name, True, told[name])


def target_states() -> list[TargetState]:
    """The state of every target, each tried in a process of its own; nothing is fetched."""
    return [_state(name) for name in TARGETS]


def _state(name: str) -> TargetState:
    if name == "npu" and importlib.util.find_spec("torch_npu") is None:
        return TargetState(
            name, False, "torch_npu is not installed; on a machine with an NPU, install CANN and it"
        )
    if name == "npu-dry" and not is_set_up():
        return TargetState(
            name,
            False,
            "not set up; `fusionkit doctor --target npu-dry` fetches torch-npu (45 MB) and tries it",
        )
    command = [sys.executable, "-m", "fusionkit.cli", "doctor", "--target", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (done.stdout.strip() or done.stderr.strip() or "no answer").splitlines()[-1]
    return TargetState(name, done.returncode == 0, said.partition(": ")[2] or said)
