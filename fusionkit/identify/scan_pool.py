"""The process pool of a scan: a process that dies costs the item it works on, and that only if it dies on it twice.

The executors of concurrent.futures and loky end as a whole with one process, and pebble waits for ever where one dies
while it sends: their processes share pipes and locks. Here each process has a pipe of its own.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from fusionkit.errors import USER_CODE_ERRORS, RunBrokenError

Item = TypeVar("Item")
Result = TypeVar("Result")

_FEW = 24  # items that are worked on in this process
_ATTEMPTS = 2  # at an item, before it is given up
_STARTS = 3  # in a row that may fail, before the pool is given up


@dataclass(eq=False)
class _Worker(Generic[Item]):
    """A process, this end of its pipe, and the item it works on; `ready` once it has imported what it needs."""

    process: BaseProcess
    pipe: connection.Connection[Any, Any]
    item: Item | None = None
    ready: bool = False


def each(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Generator[tuple[Item, Result | None], None, None]:
    """Each item with what `function` returns for it, as they are done; None where a process died on it twice.

    A few items, or one process, are worked on in this process. Whatever ends the iteration early ends the processes.
    Raises RunBrokenError where `function` raises or where no process can be started.
    """
    if processes < 2 or len(items) <= _FEW:
        for item in items:
            yield item, function(item)
        return
    with closing(_Pool(function, items)) as pool:
        yield from pool.results(min(processes, len(items)))


class _Pool(Generic[Item, Result]):
    """The processes of one iteration, the items that wait for one, and how often a process died on an item."""

    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self._function = function
        self._waiting = deque((item, 1) for item in items)
        self._workers: dict[connection.Connection[Any, Any], _Worker[tuple[Item, int]]] = {}
        self._failed_starts = 0

    def results(self, processes: int) -> Iterator[tuple[Item, Result | None]]:
        """Hand out the items until each has a result or is given up."""
        while True:
            for worker in self._workers.values():
                self._hand_out(worker)
            busy = sum(worker.item is not None for worker in self._workers.values())
            if not busy and not self._waiting:
                return
            while len(self._workers) < min(processes, busy + len(self._waiting)):
                self._start()
            for pipe in connection.wait(list(self._workers)):
                worker = self._workers[pipe]  # type: ignore[index]
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    yield from self._dead(worker)
                else:
                    yield from self._received(worker, message)

    def close(self) -> None:
        """End all processes; they have nothing to finish."""
        for worker in self._workers.values():
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _start(self) -> None:
        with quietly():
            here, there = get_context("spawn").Pipe()
            process = SpawnProcess(target=_work, args=(self._function, there), daemon=True)
            process.start()
            self._workers[here] = _Worker(process, here)
        there.close()  # so that the end of the process is the end of the pipe

    def _hand_out(self, worker: _Worker[tuple[Item, int]]) -> None:
        if worker.ready and worker.item is None and self._waiting:
            try:
                worker.pipe.send(self._waiting[0][0])
            except OSError:  # it has died, which its pipe says next
                return
            worker.item = self._waiting.popleft()

    def _received(
        self, worker: _Worker[tuple[Item, int]], message: tuple[Result, str] | None
    ) -> Iterator[tuple[Item, Result | None]]:
        if message is None or worker.item is None:
            worker.ready, self._failed_starts = True, 0
            return
        (item, _), worker.item = worker.item, None
        result, problem = message
        if problem:
            raise RunBrokenError(f"the scan itself broke: {problem}; please report it")
        yield item, result

    def _dead(self, worker: _Worker[tuple[Item, int]]) -> Iterator[tuple[Item, Result | None]]:
        del self._workers[worker.pipe]
        worker.pipe.close()
        worker.process.join()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts == _STARTS:
                code = worker.process.exitcode
                raise RunBrokenError(
                    f"processes of the scan end as they start, with code {code}; try --processes 1"
                )
        if worker.item is not None:
            item, attempt = worker.item
            if attempt < _ATTEMPTS:
                self._waiting.append((item, attempt + 1))
            else:
                yield item, None


def _work(function: Callable[[Any], Any], pipe: connection.Connection[Any, Any]) -> None:
    """One process: results of the items that come through the pipe, until it ends."""
    pipe.send(None)
    with suppress(EOFError, OSError):  # the process that started this one has ended
        while True:
            item = pipe.recv()
            try:
                message = function(item), ""
            except USER_CODE_ERRORS as error:
                words = (str(error).splitlines() or [""])[0][:200]
                message = None, f"{type(error).__name__}: {words}"
            pipe.send(message)


@contextmanager
def quietly() -> Iterator[None]:
    """Start processes in this block: they never hear the interrupt of a terminal, which goes to all of a group.

    A process takes over which signals are blocked. One that comes meanwhile is heard at the end of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its first start would unblock the interrupt
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
