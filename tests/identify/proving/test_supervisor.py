"""What the proven code starts ends with the proof, in whatever session it is."""

from __future__ import annotations

import os
import sys
import textwrap
import time

import pytest
from proved_texts import prove_texts

from fusionkit.verdict import Verdict

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can reap what has left the session"
)

MODEL = """
import os
import subprocess
import sys
import time

CHILD = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", CHILD, "{folder}/own-session"], start_new_session=True, env={{}})
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    open("{folder}/daemon", "w").write(str(os.getpid()))
    time.sleep(600)
while not all(os.path.exists("{folder}/" + name) for name in ("own-session", "daemon")):
    time.sleep(0.05)
{end}

import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("end", "reason"), [("while True: time.sleep(1)", "time limit"), ("os._exit(7)", "ended with code 7")]
)
def test_children_in_sessions_of_their_own_end_with_the_proof(tmp_path, end, reason):
    text = textwrap.dedent(MODEL).format(folder=tmp_path, end=end)
    (proof,) = prove_texts(tmp_path, text, "npu_rms_norm", text, time_limit_s=10.0)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert reason in proof.reason
    pids = [int((tmp_path / name).read_text()) for name in ("own-session", "daemon")]
    deadline = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))
