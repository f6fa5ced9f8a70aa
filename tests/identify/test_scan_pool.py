"""A scan in several processes: an interrupt is one line, and a process that is killed costs one file at most."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lethal_work import sending, square

from fusionkit.errors import RunBrokenError
from fusionkit.identify.scan_pool import each

NORM = (
    "class N{0}(nn.Module):\n    def forward(self, x):\n"
    "        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))\n"
)
MODULE = """class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)
"""
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


def jobs(folder, **harms):
    """Sixty jobs, with the harm of those whose number a keyword names."""
    by_number = {int(name.lstrip("n")): harm for name, harm in harms.items()}
    return [(folder, number, by_number.get(number, "")) for number in range(60)]


def test_a_killed_process_costs_the_one_item_that_it_dies_on_twice(tmp_path):
    done = {job[1]: result for job, result in each(square, jobs(tmp_path, n3="always", n40="once"), 2)}
    assert {number: result and result[:4] for number, result in done.items()} == {
        number: None if number == 3 else (str(number**2) * 4)[:4] for number in range(60)
    }
    attempts = {number: (tmp_path / str(number)).read_text().split() for number in range(60)}
    assert {number for number, pids in attempts.items() if len(pids) == 2} == {3, 40}
    assert max(map(len, attempts.values())) == 2
    assert (
        len({pid for pids in attempts.values() for pid in pids}) <= 5
    )  # two, and one for each that was killed


def test_every_process_may_die(tmp_path):
    harms = dict.fromkeys((f"n{number}" for number in range(0, 60, 4)), "once")
    assert all(result for _, result in each(square, jobs(tmp_path, **harms), 2))


def test_a_death_while_a_result_is_sent_costs_one_item(tmp_path):
    done = {job[1]: result for job, result in each(sending, jobs(tmp_path, n7="here"), 2)}
    assert done == {number: None if number == 7 else number for number in range(60)}


def test_a_job_that_raises_breaks_the_run_in_one_line(tmp_path):
    with pytest.raises(
        RunBrokenError, match=r"^the scan itself broke: ValueError: no luck; please report it$"
    ):
        list(each(square, jobs(tmp_path, n5="raise"), 2))


def test_processes_that_cannot_start_break_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSIONKIT_TEST_LETHAL_START", "1")
    with pytest.raises(RunBrokenError, match="end as they start, with code 7; try --processes 1"):
        list(each(square, jobs(tmp_path), 2))


def test_an_iteration_that_ends_early_leaves_no_process(tmp_path):
    before = children(os.getpid())  # such as the server that other tests have started
    results = each(square, jobs(tmp_path), 2)
    next(results)
    started = set(children(os.getpid())) - set(before)
    assert started
    results.close()
    assert not any(map(alive, started))


KILLER = """
import os, signal, sys


def kill(event, arguments):
    if event == "compile" and "LETHAL = " in str(arguments[0]):
        with open({log!r}, "a") as stream:
            stream.write("attempt\\n")
        os.kill(os.getpid(), signal.SIGKILL)


if "--multiprocessing-fork" in sys.argv:
    sys.addaudithook(kill)
"""


@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_a_kill_during_scan_diffs_costs_the_file_that_is_at_fault(tmp_path, stage):
    """A process that parses lethal.py is killed: the file is tried twice, then listed, and all others are scanned."""
    folder, diffs, log, hook = (tmp_path / name for name in ("code", "diffs", "log", "hook"))
    folder.mkdir()
    for name in ("lethal", *(f"m{number}" for number in range(FILES))):
        last = "LETHAL = True\n" if name == "lethal" else ""
        (folder / f"{name}.py").write_text("import torch\nfrom torch import nn\n\n\n" + MODULE + last)
    environment = {**os.environ, "FUSIONKIT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "fusionkit.cli", "scan", str(folder), "--processes", "2"]
    if stage == "writing":  # what was read before comes out of the cache, and only the writers parse the file
        subprocess.run(command, env=environment, check=True, capture_output=True)
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(KILLER.format(log=str(log)))
    environment["PYTHONPATH"] = os.pathsep.join([str(hook), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*command, "--diffs", str(diffs)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert log.read_text().splitlines() == ["attempt"] * 2
    lines = done.stdout.splitlines()
    if stage == "reading":
        assert "lethal.py: not read: the process that read it died" in lines
        assert f"{FILES + 1} files, {FILES} candidates" in lines[-1]
        assert lines[-1].endswith("; 1 files not read")
    else:
        listed = (
            "lethal.py:5 Norm: npu_rms_norm: no replacement: the process that wrote its replacements died"
        )
        assert listed in lines
        assert f"{FILES + 1} files, {FILES + 1} candidates" in lines[-1]
    assert len(list(diffs.glob("*.diff"))) == FILES
    assert not list(diffs.glob("*lethal*"))
