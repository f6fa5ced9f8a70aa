"""Limits on a pattern file's own code, which may loop forever or try to end the process."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fusionkit.errors import MisuseError
from fusionkit.subjects.load import UserCode
from fusionkit.subjects.source_paths import is_installed

# Time limit of one step of one pattern (import, inputs, one trace), in seconds.
TIME_LIMIT_S = 30.0

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"


class TimeLimitError(MisuseError):
    """User code exceeded its time limit; it is not tried again."""


class _TimeIsUpError(BaseException):
    """Interrupts user code; a BaseException, so that its `except Exception` does not swallow it."""


class _ProcessExitError(BaseException):
    """Raised instead of os._exit."""


@contextmanager
def within_limits(what: str, seconds: float | None = None) -> Iterator[None]:
    """Run user code in the block for at most `seconds` (default TIME_LIMIT_S), without letting it end the process.

    Either violation becomes one MisuseError that begins with `what` and ends with the code's current line. Other
    errors propagate (see subjects.load.UserCode). In the main thread a timer signal interrupts the block; in
    another thread an asynchronous exception does, set again every second in case a loop swallows it. Both act
    between two bytecodes only: a C call that does not return is not interrupted, and a signal or a crash still
    ends the process. Blocks may be nested; the outer timer goes on.
    """
    limit = TIME_LIMIT_S if seconds is None else seconds
    try:
        in_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        with _without_exit(), _signalled(limit) if in_main else _raised_from_outside(limit):
            yield
    except _TimeIsUpError as error:
        raise TimeLimitError(
            f"{what} does not end within {limit:g} s{place_of(error)}; a loop without end? mend the pattern file"
        ) from None
    except _ProcessExitError as error:
        raise MisuseError(f"{what} ends the process ({error}){place_of(error)}; remove that") from None


@contextmanager
def own_code(what: str, seconds: float | None = None) -> Iterator[None]:
    """`within_limits`, with any other error of the code (sys.exit included) as one MisuseError: `what` raised ..."""
    with UserCode(f"{what} raised"), within_limits(what, seconds):
        yield


def place_of(error: BaseException) -> str:
    """The innermost frame of user code in the error's traceback: " (at file:line)", or "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not is_installed(f.filename) and not f.filename.startswith(("<", _PACKAGE))]
    return f" (at {own[-1].filename}:{own[-1].lineno})" if own else ""


@contextmanager
def _without_exit() -> Iterator[None]:
    """os._exit raises within the block; in a forked process it still exits."""
    process = os.getpid()

    def refuse(status: int = 0) -> None:
        if os.getpid() != process:
            real(status)
        raise _ProcessExitError(f"os._exit({status})")

    real = os._exit
    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = real


@contextmanager
def _signalled(seconds: float) -> Iterator[None]:
    """Interrupt by SIGALRM in the main thread; an earlier handler and timer are restored afterwards."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUpError

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, interrupt)
    before, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if before:
            left = before - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), interval)


@contextmanager
def _raised_from_outside(seconds: float) -> Iterator[None]:
    """Interrupt from a watchdog thread, which sets the exception in this thread every second until the block ends."""
    left = threading.Event()
    lock = threading.Lock()
    thread = ctypes.c_ulong(threading.get_ident())

    def watch() -> None:
        wait = seconds
        while not left.wait(wait):
            with lock:
                if not left.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_TimeIsUpError))
            wait = 1.0

    threading.Thread(target=watch, daemon=True, name="fusionkit-time-limit").start()
    try:
        yield
    finally:
        with lock:
            left.set()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
