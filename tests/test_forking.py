"""Children of a process that has imported what they need: alike, apart from each other, and none of them left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fusionkit.errors import RunBrokenError
from fusionkit.forking import ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server imports nothing")

MODULE = """
import json, os, subprocess, sys, time
from pathlib import Path

IMPORTED_BY = os.getpid()
STATE = []


def prepare():
    STATE.append("prepared")


def report(path, words):
    STATE.append(words)
    line = sys.stdin.readline()
    print("out", line.strip(), flush=True)
    print("error", file=sys.stderr, flush=True)
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    seen = {
        "imported by": IMPORTED_BY, "parent": os.getppid(), "state": STATE, "argv": sys.argv, "cwd": os.getcwd(),
        "environment": dict(os.environ), "session": os.getsid(0) == os.getpid(),
        "descriptors": [number for number in descriptors if os.path.exists(f"/proc/self/fd/{number}")],
    }
    Path(path).write_text(json.dumps(seen))
    return 3


def fail():
    raise ValueError("no luck")


def sleep(path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(path + ".new").write_text(f"{os.getpid()} {child.pid} {os.getppid()}")
    os.rename(path + ".new", path)
    time.sleep(600)


def kill_server():
    os.kill(os.getppid(), 9)
    time.sleep(600)
"""


KIT = """
import os, sys
from pathlib import Path
from test_forking import ForkServer, sleepers
with ForkServer(["forked_module"], prepare=["forked_module:prepare"]) as server:
    sleepers(server, Path(sys.argv[1]))
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "forked_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    with ForkServer(["forked_module"], prepare=["forked_module:prepare"]) as server:
        yield server


def forked(server, folder, function, *arguments):
    """A child whose standard input is one line, and whose output goes to files."""
    read, write = os.pipe()
    os.write(write, b"a line\n")
    os.close(write)
    with (folder / "out").open("wb") as out, (folder / "error").open("wb") as error:
        child = server.fork(
            f"forked_module:{function}", arguments,
            streams=(read, out.fileno(), error.fileno()), cwd=folder, environment={"ONLY": "1", "PATH": os.environ["PATH"]},
        )  # fmt: skip
    os.close(read)
    return child


def seen(server, folder, words):
    path = folder / f"seen-{words}"
    assert forked(server, folder, "report", str(path), words).wait(60) == 3
    return json.loads(path.read_text())


def gone(*pids):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sleepers(server, folder):
    """The child, what it has started in a session of its own, and the server."""
    child = forked(server, folder, "sleep", str(folder / "pids"))
    while not (folder / "pids").exists():
        assert child.poll() is None, (folder / "error").read_text()
        time.sleep(0.02)
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert pids[0] == child.pid
    return child, pids


def test_a_child_is_a_process_of_its_own_with_what_it_was_given(server, tmp_path):
    first = seen(server, tmp_path, "first")
    assert first["argv"] == ["forked_module:report", str(tmp_path / "seen-first"), "first"]
    assert first["cwd"] == str(tmp_path)
    assert first["environment"] == {"ONLY": "1", "PATH": os.environ["PATH"]}
    assert first["session"]
    assert first["descriptors"] == [0, 1, 2]  # neither the socket nor any pipe of the server's
    assert (tmp_path / "out").read_text() == "out a line\n"
    assert (tmp_path / "error").read_text() == "error\n"


def test_modules_are_imported_once_and_no_child_sees_what_another_did(server, tmp_path):
    first, second = (seen(server, tmp_path, words) for words in ("first", "second"))
    assert first["imported by"] == second["imported by"] == first["parent"] == second["parent"] != os.getpid()
    assert first["state"] == ["prepared", "first"]
    assert second["state"] == ["prepared", "second"]


def test_several_children_run_at_once_and_each_has_its_exit_code(server, tmp_path):
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
    children = [sleepers(server, folder)[0] for folder in folders]
    assert [child.poll() for child in children] == [None] * 3
    with pytest.raises(subprocess.TimeoutExpired):
        children[0].wait(0.05)
    children[1].kill()
    assert children[1].wait(30) == -signal.SIGKILL
    children[0].terminate()
    assert children[0].wait(30) == -signal.SIGTERM
    assert children[2].poll() is None
    assert seen(server, tmp_path, "last")["descriptors"] == [0, 1, 2]


def test_what_a_child_raises_is_on_its_standard_error(server, tmp_path):
    assert forked(server, tmp_path, "fail").wait(30) == 1
    assert (tmp_path / "error").read_text().endswith("ValueError: no luck\n")


def test_closing_ends_the_children_and_what_they_have_started(server, tmp_path):
    child, pids = sleepers(server, tmp_path)
    server.close()
    assert not any(map(alive, pids))
    assert child.wait(1) == -signal.SIGTERM


def test_the_end_of_the_kit_ends_the_server_and_its_children(server, tmp_path):
    paths = [str(tmp_path), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", KIT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gone(*map(int, (tmp_path / "pids").read_text().split()))


def test_a_server_that_was_killed_is_started_anew(server, tmp_path):
    child, pids = sleepers(server, tmp_path)
    os.kill(pids[2], signal.SIGKILL)
    assert child.wait(30) == -signal.SIGKILL
    assert gone(child.pid)
    second = seen(server, tmp_path, "second")
    assert second["imported by"] not in pids
    assert forked(server, tmp_path, "kill_server").wait(30) == -signal.SIGKILL
    assert seen(server, tmp_path, "third")["state"] == ["prepared", "third"]
    os.kill(
        pids[1], signal.SIGKILL
    )  # what had left the session of a child is out of reach without its server


THREAD = "import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            MODULE + THREAD,
            "(exit code 1): 2 threads run once forked_module are imported, and a fork would lose them",
        ),
        ("raise ImportError('nothing to load')", "(exit code 1): ImportError: nothing to load"),
        ("import os\nos._exit(5)", "(exit code 5): it says nothing"),
        ("import os\nos.abort()", "(SIGABRT): it says nothing"),
        ("import os\nprint('a warning', flush=True)\nos.kill(os.getpid(), 9)", "(SIGKILL): a warning"),
    ],
    ids=["a thread", "an error", "an end", "a signal", "a signal after a line"],
)
def test_a_server_that_cannot_fork_safely_does_not_start(server, tmp_path, text, reason):
    (tmp_path / "forked_module.py").write_text(text)
    with pytest.raises(RunBrokenError) as caught:
        forked(server, tmp_path, "report", "", "")
    assert str(caught.value) == f"the process that forks others does not start {reason}"


def test_a_server_that_is_not_ready_in_time_is_killed(server, tmp_path, monkeypatch):
    monkeypatch.setattr("fusionkit.forking._START_LIMIT_S", 1.0)
    (tmp_path / "forked_module.py").write_text("import time\ntime.sleep(600)")
    with pytest.raises(
        RunBrokenError, match=r"does not start \(not ready in time, and killed\): it says nothing"
    ):
        forked(server, tmp_path, "report", "", "")
