"""The watchdog on plain processes: which limit, and that nothing of the family survives."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from fusionkit.execution.limits import GIB, Limits
from fusionkit.execution.watchdog import Watchdog

PARENT = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "60"], start_new_session=True)
held = b"x" * int(sys.argv[1])
print(child.pid, flush=True)
time.sleep(float(sys.argv[2]))
"""


class Family:
    """A process with a child in a session of its own."""

    def __init__(self, held_bytes: int, seconds: float) -> None:
        words = [sys.executable, "-c", PARENT, str(held_bytes), str(seconds)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.child = psutil.Process(int(self.process.stdout.readline()))

    def end(self) -> None:
        if self.child.is_running():
            self.child.kill()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def families() -> Iterator[list[Family]]:
    made: list[Family] = []
    yield made
    for family in made:
        family.end()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(timeout_s=0.3), "time limit reached: 0.3 s (--timeout)"),
        (Limits(memory_bytes=GIB // 8), "of 0.125 GiB (--memory-limit)"),
    ],
)
def test_at_a_limit_the_whole_family_is_killed(families: list[Family], limits: Limits, told: str) -> None:
    families.append(Family(200_000_000, 60))
    watchdog = Watchdog(limits)
    watchdog.watch(families[0].process.pid)
    assert families[0].process.wait(timeout=20) == -9
    assert watchdog.breach is not None
    assert told in watchdog.breach
    assert has_ended(families[0].child)
    watchdog.close()


def test_what_outlives_the_kernel_is_ended_without_a_breach(families: list[Family]) -> None:
    families.append(Family(0, 1.0))
    watchdog = Watchdog(Limits())
    watchdog.watch(families[0].process.pid)
    assert families[0].process.wait(timeout=20) == 0
    assert families[0].child.is_running()
    watchdog.close()
    assert watchdog.breach is None
    assert has_ended(families[0].child)


def test_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    watchdog = Watchdog(Limits())
    watchdog.watch(process.pid)
    watchdog.close()
    assert watchdog.breach is None


def has_ended(process: psutil.Process) -> bool:
    for _ in range(100):
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False
