"""Record one eager forward: which counters match, in which module, on which line."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from fusionkit.counters import FunctionCounter, ModuleCounter, SiteCounter
from fusionkit.subjects.build import Subject, seeded
from fusionkit.subjects.load import UserCode
from fusionkit.subjects.source_paths import short_path

Bindings = dict[int, list[tuple[ModuleType, str]]]

_MODULE_CALL = nn.Module.__call__.__code__.co_filename


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One counted call. `code` implements the primitive; `line` is its first line or, in a caller, that of the call.

    `module`: path of the innermost running module. `owner`: the module whose method `code` is, if any. `namespace`:
    name of the Python module that defines `code`. `caller`: `file:line` of the caller outside torch.
    """

    primitive: str
    module: str
    code: CodeType
    namespace: str
    line: int
    owner: nn.Module | None
    caller: str


@dataclass(slots=True)
class Recorder:
    """Collects occurrences; `running` and `open` track the running modules and the open sites."""

    occurrences: list[Occurrence] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    open: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        row: SiteCounter,
        implementation: Callable[..., Any] | None,
        frame: FrameType,
        owner: nn.Module | None,
        sites: int = 1,
    ) -> None:
        """Record `sites` occurrences of `row`, implemented by a function or by the calling `frame`'s code."""
        if self.open[row.primitive]:
            return
        caller = _outside_torch(frame)
        module = self.running[-1] if self.running else ""
        function = None if implementation is None else inspect.unwrap(implementation)
        if function is not None and hasattr(function, "__code__"):
            code, namespace = function.__code__, function.__module__
            line = code.co_firstlineno
        else:
            code, namespace, line = frame.f_code, frame.f_globals.get("__name__", ""), frame.f_lineno
            holder = frame.f_locals.get("self")
            owner = holder if isinstance(holder, nn.Module) else None
        place = f"{short_path(caller.f_code.co_filename)}:{caller.f_lineno}"
        occurrence = Occurrence(row.primitive, module, code, namespace, line, owner, place)
        self.occurrences.extend([occurrence] * sites)


def record(subject: Subject, rows: Sequence[SiteCounter]) -> list[Occurrence]:
    """Run `subject` once, eagerly and without gradients, and return what `rows` counted, in call order.

    Hooks, functions, buffers and the random state are restored. Counted functions are replaced in the whole process
    meanwhile: not thread-safe.
    """
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        stack.enter_context(seeded(subject.seed))
        stack.enter_context(_buffers_kept(subject.model))
        stack.enter_context(_module_hooks(subject.model, rows, recorder))
        counted = [(row, path) for row in rows if isinstance(row, FunctionCounter) for path in row.functions]
        bindings = _bindings([_function_at(path)[2] for _, path in counted])
        for row, path in counted:
            stack.enter_context(_function_wrapped(row, path, recorder, bindings))
        with UserCode(f"subject {subject.name}: its plain forward fails with"):
            subject.run()
    return recorder.occurrences


@contextlib.contextmanager
def _module_hooks(model: nn.Module, rows: Sequence[SiteCounter], recorder: Recorder) -> Iterator[None]:
    """Hook every module: maintain the stack of running modules, and count those that a ModuleCounter matches."""
    handles = []
    try:
        for path, module in model.named_modules():
            matching = [row for row in rows if isinstance(row, ModuleCounter) and row.matches(module)]
            handles.append(module.register_forward_pre_hook(_entered(path, matching, recorder)))
            handles.append(module.register_forward_hook(_left(matching, recorder), always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _entered(
    path: str, matching: Sequence[ModuleCounter], recorder: Recorder
) -> Callable[[nn.Module, Any], None]:
    def hook(module: nn.Module, _args: Any) -> None:
        recorder.running.append(path)
        for row in matching:
            forward = None if row.in_caller else getattr(module.forward, "__func__", module.forward)
            recorder.add(row, forward, _calling_frame(), module)
            recorder.open[row.primitive] += 1

    return hook


def _left(matching: Sequence[ModuleCounter], recorder: Recorder) -> Callable[[nn.Module, Any, Any], None]:
    def hook(_module: nn.Module, _args: Any, _output: Any) -> None:
        recorder.running.pop()
        for row in matching:
            recorder.open[row.primitive] -= 1

    return hook


def _function_at(path: str) -> tuple[Any, str, Any]:
    """What holds the function at `path` (module:function or module:Class.function), its name, and the function."""
    home, _, qualname = path.partition(":")
    holder, _, name = qualname.rpartition(".")
    owner = sys.modules.get(home)
    owner = getattr(owner, holder, None) if holder else owner
    return owner, name, getattr(owner, name, None)


@contextlib.contextmanager
def _function_wrapped(
    row: FunctionCounter, path: str, recorder: Recorder, bindings: Bindings
) -> Iterator[None]:
    """Replace the function at `path`, wherever a loaded module has bound it, by one that counts and calls it."""
    owner, name, function = _function_at(path)
    if function is None:
        yield
        return

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if row.counts(kwargs):
            recorder.add(row, function, sys._getframe(1), None, row.sites)
        recorder.open[row.primitive] += 1
        try:
            return function(*args, **kwargs)
        finally:
            recorder.open[row.primitive] -= 1

    if not isinstance(owner, ModuleType):
        places: Sequence[tuple[Any, str]] = [(owner, name)]
    else:  # another row may have replaced it already
        places = bindings[id(function)] if id(function) in bindings else _bindings([function])[id(function)]
    try:
        for place, bound in places:
            setattr(place, bound, counted)
        yield
    finally:
        for place, bound in places:
            setattr(place, bound, function)


def _bindings(functions: Sequence[Any]) -> Bindings:
    """Identity of each function -> every (loaded module, name) that holds it, places in one pass over the modules.

    The C extension that defines a function is left alone.
    """
    places: Bindings = {id(function): [] for function in functions if function is not None}
    if not places:
        return places
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and not module.__name__.startswith("torch._C"):
            for name, value in list(vars(module).items()):
                if id(value) in places:
                    places[id(value)].append((module, name))
    return places


@contextlib.contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore the buffers that a forward in training mode changes, such as running statistics."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()] if model.training else []
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)


def _calling_frame() -> FrameType:
    """The frame that called the module whose hook is running."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == _MODULE_CALL and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _outside_torch(frame: FrameType) -> FrameType:
    """The innermost frame, from `frame` outwards, that is not torch's code."""
    outer: FrameType | None = frame
    while outer is not None and short_path(outer.f_code.co_filename).startswith("torch/"):
        outer = outer.f_back
    return outer or frame
