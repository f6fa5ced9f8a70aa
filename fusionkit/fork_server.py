"""A process that imports modules once and forks a child for each call: `python -m fusionkit.fork_server`, see `forking`.

Requests come over a socket; the id and the exit code of each child go into a pipe that came with its request. The server
has one thread, so that a fork copies all of it, and runs nothing but imports and `prepare`: each child starts from the
same state. On Linux alone; elsewhere, where loaded libraries may not survive a fork, it imports nothing and each child
does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusionkit.processes import kill_descendants, set_child_subreaper, set_death_signal

GRACE_S = 10.0
"""For a child that is ended to end what it has started."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request."""

    function: str
    arguments: list[Any]
    cwd: str
    environment: dict[str, str]


def main(control: socket.socket, modules: Sequence[str], prepare: Sequence[Any]) -> int:
    """Serve until the other end of the socket is closed; in a child, the exit code of its call."""
    set_child_subreaper()
    if sys.platform == "linux":
        for name in modules:
            importlib.import_module(name)
        if prepare:
            _function(prepare[0])(*prepare[1:])
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            sys.exit(
                f"{threads} threads run once {', '.join(modules)} are imported, and a fork would lose them"
            )
    gc.collect()
    gc.freeze()  # so that no collection in a child copies the pages of what lives for good
    control.send(b".")
    call = _serve(control)
    if call is None:
        kill_descendants()
        return 0
    result = _function(call.function)(*call.arguments)
    return result if isinstance(result, int) else 0


def _serve(control: socket.socket) -> _Call | None:
    """The call of this process, where it is a child; None in the server, once it is no longer needed."""
    awake, wake = _wake_when_children_end()
    server = os.getpid()
    running: dict[int, int] = {}  # id of a child -> the pipe that its exit code goes into
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(awake, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        with contextlib.suppress(BlockingIOError):
            os.read(awake, 4096)
        _reap(running)
        if control.fileno() not in ready:
            continue
        data, streams = _request(control)
        if not data:
            break
        above, below = socket.socketpair()
        child = os.fork()
        if not child:
            above.close()
            _leave(control, below, [awake, wake, streams[3], *running.values()])
            return _settled(_Call(**json.loads(data)), streams[:3], server)
        below.close()
        running[child] = streams[3]
        with above, contextlib.suppress(OSError):
            above.recv(1)  # it has left this session, so that a signal to its group is none to this
            _report(streams[3], child)
            above.send(b".")
        for descriptor in streams[:3]:
            os.close(descriptor)
    _end(running)
    return None


def _wake_when_children_end() -> tuple[int, int]:
    """Both ends of a pipe that has something to read whenever a child has ended."""
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return awake, wake


def _leave(control: socket.socket, below: socket.socket, descriptors: Sequence[int]) -> None:
    """Give up, in a child, what is the server's, and wait until the server has reported it."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with below:
        below.send(b".")
        below.recv(1)
    for descriptor in descriptors:
        os.close(descriptor)
    control.close()


def _request(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next request and its file descriptors; empty once the other end is closed."""
    head, streams, _, _ = socket.recv_fds(control, 8, 4)
    while head and len(head) < 8:
        head += control.recv(8 - len(head))
    size, data = int.from_bytes(head, "big"), b""
    while len(data) < size and (part := control.recv(size - len(data))):
        data += part
    return data, list(streams)


def _settled(call: _Call, streams: Sequence[int], server: int) -> _Call:
    """Make this child what a process that was started for the call would be."""
    set_death_signal(signal.SIGTERM)
    if os.getppid() != server:
        os._exit(1)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(call.cwd)
    os.environ.clear()
    os.environ.update(call.environment)
    words = [item if isinstance(item, list) else [item] for item in call.arguments]
    sys.argv = [call.function, *(str(word) for part in words for word in part)]
    return call


def _reap(running: dict[int, int]) -> None:
    """Report the exit codes of children that have ended; orphans among them have nobody to report to."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] in running:
                status = running.pop(ended[0])
                _report(status, os.waitstatus_to_exitcode(ended[1]))
                os.close(status)


def _report(pipe: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(pipe, f"{number}\n".encode())


def _end(running: dict[int, int]) -> None:
    """Give the children time to end what they have started."""
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while running and time.monotonic() < deadline:
        _reap(running)
        time.sleep(0.01)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1])), **json.loads(sys.argv[2])))
