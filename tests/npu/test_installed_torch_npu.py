"""torch_npu is installed and CANN is not: the unpacked wheel of npu-dry's cache, metadata included, on the path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from dry_processes import process_environment, run_script, unavailable
from nbformat import v4

from fusionkit.errors import FusionKitError
from fusionkit.execution.limits import Limits
from fusionkit.execution.notebook import execute_notebook
from fusionkit.identify.proving import prove_file
from fusionkit.identify.scan_file import sites_of_text
from fusionkit.npu.dry.cache import prepare
from fusionkit.processes import BACKEND_AUTOLOAD

pytestmark = pytest.mark.dry

HERE = Path(__file__).parent
NORM = """
import torch
from torch import nn


class RootNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (x * scale)
"""


@pytest.fixture(scope="module")
def installed() -> str:
    """The folder that holds torch_npu and its metadata."""
    try:
        return str(prepare().package_root)
    except FusionKitError as error:
        unavailable(str(error))


@pytest.fixture
def environment(installed: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """torch_npu on the path of every process that is started; the variable is not set."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([installed, *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    monkeypatch.delenv(BACKEND_AUTOLOAD, raising=False)
    return monkeypatch


def fusionkit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fusionkit", *words]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=process_environment()
    )


def test_without_the_kit_torch_does_not_start(environment: pytest.MonkeyPatch) -> None:
    """What the tests below rest on: here an installed torch_npu does end `import torch`."""
    done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "Failed to load the backend extension: torch_npu" in done.stderr


@pytest.mark.parametrize("value", [None, "0"])
def test_a_process_of_target_cpu_sees_no_torch_npu(
    environment: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        environment.setenv(BACKEND_AUTOLOAD, value)
    seen: Any = run_script(HERE / "installed_session.py")
    assert seen["installed"].startswith("2.")
    text = f"target cpu: torch_npu is imported in this process already; start a new one with {BACKEND_AUTOLOAD}=0"
    assert seen["imported"] == ["MisuseError", text]
    text = (
        "target cpu: diffusers was imported before it and has seen the installed torch_npu; call"
        " fusionkit.use_target('cpu') before importing diffusers"
    )
    assert seen["early"] == ["MisuseError", text]
    assert seen["left"] is False
    assert seen["again"] is True
    assert seen["spec"] is True
    assert seen["import"][0] == "ModuleNotFoundError"
    assert len(seen["libraries"]) >= 2
    assert not any(seen["libraries"])
    assert seen["models"] == ["LlamaForCausalLM", "FluxTransformer2DModel"]
    assert seen["facade"] is True


def test_a_command_of_target_cpu(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(BACKEND_AUTOLOAD, "1")  # the kit's own processes set it themselves
    done = fusionkit("hits", "llama", "--json")
    assert done.returncode == 0, done.stderr
    hits = {name: row["hits"] for name, row in json.loads(done.stdout)["patterns"].items()}
    assert hits == {"rms_norm": 5, "rope": 4, "swiglu": 2}


def test_a_script_that_imports_transformers_first(environment: pytest.MonkeyPatch) -> None:
    code = """
import fusionkit, transformers, torch
model = torch.nn.Sequential(torch.nn.RMSNorm(8, eps=1e-6), torch.nn.GELU("tanh")).eval()
with torch.no_grad():
    print(tuple(torch.compile(model, backend="fusionkit")(torch.randn(2, 8)).shape))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=process_environment()
    )
    assert done.stdout == "(2, 8)\n", done.stderr


def test_the_installed_torch_npu_is_taken_for_npu_dry(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("FUSIONKIT_CACHE", str(tmp_path))
    environment.delenv("FUSIONKIT_TORCH_NPU_WHEEL", raising=False)
    done = fusionkit("doctor", "--target", "npu-dry")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " (installed) as Ascend" in done.stdout
    assert not list(tmp_path.glob("wheels/*.whl"))


def test_a_proof_worker(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "norms.py"
    path.write_text(NORM)
    done = fusionkit("scan", str(path), "--prove", "--json")
    assert done.returncode == 0, done.stderr
    (candidate,) = json.loads(done.stdout)["candidates"]
    assert candidate["op"] == "npu_rms_norm"
    assert candidate["proof"]["verdict"] == "PASS", candidate["proof"]


def test_a_proof_worker_of_the_library(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv(BACKEND_AUTOLOAD, "1")
    path = tmp_path / "norms.py"
    path.write_text(NORM)
    (site,) = [site for site in sites_of_text(path, NORM) if site.op == "npu_rms_norm"]
    fused = "if torch_npu is not None:\n            return torch_npu.npu_rms_norm(x, self.weight, self.eps)[0]\n        "
    guard = "import torch\ntry:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None\n"
    text = NORM.replace("scale = ", f"{fused}scale = ", 1).replace("import torch\n", guard, 1)
    (proof,) = prove_file(path, [(site, text)])
    assert str(proof.verdict) == "PASS", proof.reason


def test_a_notebook_kernel(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setenv(BACKEND_AUTOLOAD, "1")  # the kit's own processes set it themselves
    cell = """
from fusionkit.npu.target import use_target
use_target("cpu")
from transformers import LlamaForCausalLM
print(LlamaForCausalLM.__name__)
"""
    node = v4.new_notebook(cells=[v4.new_code_cell(cell)])
    nbformat.write(node, tmp_path / "01_one.ipynb")
    executed = execute_notebook(
        tmp_path / "01_one.ipynb", tmp_path / "out.ipynb", {}, Limits(120), lambda cell, cells: None
    )
    assert executed.cells[-1]["outputs"][0]["text"] == "LlamaForCausalLM\n"
