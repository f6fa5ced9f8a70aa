"""Calls in processes of their own that are forked from one which has imported what they need: that is paid for once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from fusionkit.errors import RunBrokenError
from fusionkit.fork_server import GRACE_S
from fusionkit.processes import ending, module_command

_START_LIMIT_S = 300.0
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # numpy's threads start as it is imported


class ForkedProcess:
    """A child of the server, with the methods of `subprocess.Popen` that end it and wait for it."""

    def __init__(self, pid: int, status: IO[bytes]) -> None:
        """`status`: the pipe that the exit code comes through."""
        self.pid = pid
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; SIGKILL's where the server has died. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not _readable(self._status.fileno(), timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            line = self._status.readline()
            if not line:
                self.kill()
            self.returncode = int(line or -signal.SIGKILL)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Forks children of a process that has imported `modules` and called `prepare`.

    It starts with the first child, and anew where it has died. Closing it, or the end of the process that made it, ends
    its children, on Linux in whatever session they are. `environment`: additional variables while it imports.
    """

    def __init__(
        self,
        modules: Sequence[str],
        *,
        prepare: Sequence[Any] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`prepare`: "module:function", called after the imports, and its arguments, in JSON types."""
        self._plan = json.dumps({"modules": list(modules), "prepare": list(prepare)})
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Nothing starts yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def fork(
        self,
        function: str,
        arguments: Sequence[Any] = (),
        *,
        streams: tuple[int, int, int],
        cwd: Path,
        environment: Mapping[str, str],
    ) -> ForkedProcess:
        """Call "module:function" with `arguments` (of JSON types) in a child, which ends when it returns.

        The child leads a session of its own; an int that is returned is its exit code. Its sys.argv holds the name and
        the arguments, those in lists one by one. `streams`: file descriptors of its standard input, output and error;
        `environment`: all of its variables.
        Raises RunBrokenError where the server does not start.
        """
        call = {
            "function": function,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environment": dict(environment),
        }
        data = json.dumps(call).encode()
        with self._lock:
            for _ in range(2):  # a server that has died meanwhile is started anew
                child = self._forked(len(data).to_bytes(8, "big") + data, streams)
                if child is not None:
                    return child
        raise RunBrokenError("the process that forks others died twice as a child was requested")

    def close(self) -> None:
        """End the server and its children."""
        if self._process is None or self._socket is None:
            return
        self._socket.close()
        try:
            self._process.wait(2 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None

    def _forked(self, message: bytes, streams: tuple[int, int, int]) -> ForkedProcess | None:
        """None where the server has died."""
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None or self._socket is None:
            self._process, self._socket = self._start()
        read, write = os.pipe()
        status = os.fdopen(read, "rb", buffering=0)
        try:
            with contextlib.suppress(OSError):
                socket.send_fds(self._socket, [message[:8]], [*streams, write])
                self._socket.sendall(message[8:])
            os.close(write)
            line = status.readline()
        except BaseException:  # an interrupt: half a request may have been sent
            self.close()
            raise
        if line:
            return ForkedProcess(int(line), status)
        status.close()
        self.close()  # which waits for its end: its pipes are closed before that
        return None

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        here, there = socket.socketpair()
        with there, tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                module_command("fusionkit.fork_server", str(there.fileno()), self._plan),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **_ONE_THREAD, **self._environment},
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
            there.close()
            answers, ready = False, b""
            try:
                answers = _readable(here.fileno(), _START_LIMIT_S)
                ready = here.recv(1) if answers else b""
            finally:
                if not ready:
                    here.close()
                    end = _end(process, GRACE_S if answers else 0.0)
            if ready:
                return process, here
            output.seek(0)
            lines = output.read().decode("utf-8", "replace").split("\n")
        why = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
        raise RunBrokenError(f"the process that forks others does not start ({end}): {why}")


def _end(process: subprocess.Popen[bytes], grace_s: float) -> str:
    """How a process ends of itself within so many seconds, in words; it is killed where it does not."""
    try:
        return ending(process.wait(grace_s))
    except subprocess.TimeoutExpired:
        return "not ready in time, and killed"
    finally:
        process.kill()
        process.wait()


def _readable(descriptor: int, timeout: float | None) -> bool:
    """Whether there is something to read, or the other end is closed, within so many seconds (None: any time)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0, int(timeout * 1000))))
