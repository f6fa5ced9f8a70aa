"""Proofs are forks of one process that has imported torch: each starts from the same state, and none is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proved_texts import guarded, prove_texts

from fusionkit.processes import descendants
from fusionkit.verdict import Verdict

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere each proof imports torch by itself"
)

BODY = """
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(variance + 1e-5) * self.weight.float()).to(x.dtype)
"""
NORM = f"""
import gc
import json
import os
import sys
import threading
from pathlib import Path

import torch
from torch import nn

supervisor = os.getppid()
Path("{{folder}}/{{name}}").write_text(json.dumps({{{{
    "server": int(Path(f"/proc/{{{{supervisor}}}}/stat").read_text().rpartition(")")[2].split()[1]),
    "session": os.getsid(0) == supervisor != os.getpid(),
    "left": [hasattr(torch, "left_behind"), "LEFT_BEHIND" in os.environ, "left_behind" in sys.modules],
    "random": torch.rand(3).tolist(),
    "threads": [torch.get_num_threads(), len(os.listdir("/proc/self/task"))],
    "autoload": os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"],
    "blas": os.environ.get("OPENBLAS_NUM_THREADS"),
    "torch_npu": sys.modules.get("torch_npu", "absent"),
    "cwd": os.getcwd(),
    "pipes": [link for name in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{{{{name}}}}")
              if (link := os.readlink(f"/proc/self/fd/{{{{name}}}}")).startswith(("pipe:", "socket:")) and name != "0"],
    "input": sys.stdin.read(),
}}}}))
torch.left_behind = os.environ["LEFT_BEHIND"] = "1"
sys.modules["left_behind"] = torch
torch.manual_seed(7)
torch.set_num_threads(2)


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):{BODY}"""
RIGHT = "return torch_npu.npu_rms_norm(x, self.weight, 1e-5)[0]"


def test_proofs_are_forks_of_one_process_and_know_nothing_of_each_other(tmp_path):
    seen = []
    for name in ("first", "second"):
        text = NORM.format(folder=tmp_path, name=name)
        rewritten = guarded(text, BODY.lstrip("\n"), RIGHT).replace(
            f"{tmp_path}/{name}", f"{tmp_path}/rewritten"
        )
        (proof,) = prove_texts(tmp_path, text, "npu_rms_norm", rewritten, dtypes=("float32",))
        assert proof.verdict is Verdict.PASS, proof.reason
        seen.append(json.loads((tmp_path / name).read_text()))
    first, second = seen
    assert first["cwd"] != second["cwd"]
    assert first | {"cwd": ""} == second | {"cwd": ""}
    assert first["session"]
    assert first["left"] == [False] * 3
    assert first["threads"] == [1, 1]
    assert (first["autoload"], first["blas"]) == ("0", os.environ.get("OPENBLAS_NUM_THREADS"))
    assert first["torch_npu"] is None
    assert first["pipes"] == []
    assert first["input"] == ""  # the key was read before, and nothing follows it
    assert b"fusionkit.fork_server" in Path(f"/proc/{first['server']}/cmdline").read_bytes()
    assert first["server"] in descendants(os.getpid())


def test_an_interrupt_of_a_proof_is_one_line_and_leaves_nothing(tmp_path):
    model, pids = tmp_path / "model.py", tmp_path / "pids"
    text = NORM.format(folder=tmp_path, name="seen")
    waits = (
        "import subprocess, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"Path('{pids}.new').write_text(f'{{os.getpid()}} {{os.getppid()}} {{child.pid}}')\n"
        f"os.rename('{pids}.new', '{pids}')\ntime.sleep(600)\n"
    )
    model.write_text(text.replace("\n\nclass Norm", f"\n{waits}\n\nclass Norm"))
    process = subprocess.Popen(
        [sys.executable, "-m", "fusionkit.cli", "scan", str(model), "--no-cache", "--prove"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # A job that a shell started in the background ignores SIGINT, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with process:
        while not pids.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        started = [*map(int, pids.read_text().split()), *descendants(process.pid)]
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert errors.splitlines()[-1] == "fusionkit: interrupted"
    assert "Traceback" not in errors
    assert len(set(started)) == 4  # the server, the supervisor, the worker, and what that has started
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
