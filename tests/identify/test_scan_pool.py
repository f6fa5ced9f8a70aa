"""An interrupt during a scan in several processes: one line, code 130, no process left, and a cache that holds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NORM = (
    "class N{0}(nn.Module):\n    def forward(self, x):\n"
    "        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))\n"
)
FILES = 60

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are told by /proc")


def children(pid):
    """The processes that a process has started, other than the one that looks after semaphores."""
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(child)
            for child in pids
            if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
    except OSError:
        return []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("delay", [0.0, 1.0, 6.0])  # while they start, while they import, while they read
def test_an_interrupt_of_the_whole_group_is_one_line(tmp_path, delay):
    folder, cache = tmp_path / "code", tmp_path / "cache"
    folder.mkdir()
    code = "import torch\nfrom torch import nn\n" + "".join(NORM.format(number) for number in range(400))
    for number in range(FILES):
        (folder / f"m{number}.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-m", "fusionkit.cli", "scan", str(folder), "--processes", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "FUSIONKIT_CACHE": str(cache)},
        # A job that a shell started in the background ignores SIGINT, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    with process:
        for _ in range(600):
            if (held := children(process.pid)) or process.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(delay)
        held = children(process.pid) or held
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out, errors) == (130, "", "fusionkit: interrupted\n")
    assert held
    for _ in range(100):  # the process that looks after semaphores ends once it sees that this one has
        if not any(map(alive, held)):
            break
        time.sleep(0.1)
    assert not any(map(alive, held))
    for path in cache.rglob("*.json"):
        json.loads(path.read_text("utf-8"))
