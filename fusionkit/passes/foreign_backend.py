"""A torch.compile backend that is not the kit's, wrapped so that the graphs it works on are seen."""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch._dynamo
import torch.fx
from torch._dynamo.backends import common
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

from fusionkit.capture.graphs import copy_graph_module
from fusionkit.errors import MisuseError
from fusionkit.subjects.load import UserCode

Backend = Callable[..., Any]
# Told of each graph: its level ("aot", "pattern pass" or "dynamo"), the graph, the decomposition table of its trace.
Look = Callable[[str, torch.fx.GraphModule, Mapping[Any, Any]], None]

# What MindIE-SD's backend class calls its window (MindIE-SD compilation/mindie_sd_backend.py).
PATTERN_PASS = "apply_pattern_match_passes"

_COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler")

# torch's AOT entry is patched for the time of one compile; the patch is per process, so one probe at a time.
_ONE_AT_A_TIME = threading.RLock()


def resolve_backend(text: str) -> Backend:
    """The backend that `module:callable` or a name that torch knows stands for; a class is instantiated.

    The module is imported from sys.path and the working folder. Raises MisuseError, one line, for anything else.
    """
    if ":" not in text:
        names = torch._dynamo.list_backends(None)
        if text not in names:
            near = difflib.get_close_matches(text, names, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"torch knows {', '.join(names)}"
            raise MisuseError(f"backend '{text}' is unknown; {hint}; or give your own as module:callable")
        return torch._dynamo.lookup_backend(text)
    module_name, _, attribute = text.partition(":")
    with _working_folder(), UserCode(f"backend '{text}': importing {module_name} raised"):
        module = importlib.import_module(module_name)
    found = getattr(module, attribute, None)
    if isinstance(found, type):
        with UserCode(f"backend '{text}': {attribute}() raised"):
            found = found()
    if not callable(found):
        raise MisuseError(
            f"backend '{text}': {module_name} has no callable '{attribute}'; name a backend of it"
        )
    return found  # type: ignore[no-any-return]


@contextmanager
def _working_folder() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


class WatchedBackend:
    """`backend`, and a listener that sees each graph before the backend's own compiler does.

    Where the backend has MindIE-SD's pattern pass, the graphs that this pass gets are seen; where it goes through
    AOT autograd, those that its inner compilers get; else the one that dynamo hands over. `received` counts the
    graphs that dynamo handed over, `unseen` those for which the backend came back without having shown any to its
    compiler, as it does when a compile cache serves them.
    """

    def __init__(self, backend: Backend, look: Look) -> None:
        self._backend = backend
        self._look = look
        self._own_pass = hasattr(backend, PATTERN_PASS)
        self._thread = 0
        self._seen = False
        self._through_aot = False
        self._table: Mapping[Any, Any] = {}
        self.received = 0
        self.unseen = 0

    def __call__(self, module: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Any:
        """Compile one graph; what torch.compile calls."""
        self.received += 1
        handed_over = copy_graph_module(module)
        with _ONE_AT_A_TIME, ExitStack() as stack:
            self._thread, self._seen, self._through_aot = threading.get_ident(), False, False
            stack.callback(self._stop)
            for patch in self._patches():
                stack.enter_context(patch)
            compiled = self._backend(module, example_inputs, **options)
            if not self._seen and (self._through_aot or self._own_pass):
                self.unseen += 1
            elif not self._seen:
                self._look("dynamo", handed_over, {})
        return compiled

    def _stop(self) -> None:
        self._thread = 0

    def _tell(self, level: str, module: torch.fx.GraphModule, table: Mapping[Any, Any]) -> None:
        if threading.get_ident() == self._thread:
            self._seen = True
            self._look(level, module, table)

    def _patches(self) -> Iterator[contextlib.AbstractContextManager[None]]:
        yield _replaced(common.AotAutograd, "__call__", self._aot_call(common.AotAutograd.__call__))
        simplified = aot_autograd.aot_module_simplified
        direct = self._aot_direct(simplified)
        places: Any = inspect.getmodule(self._backend) or inspect.getmodule(type(self._backend))
        for name in [key for key, value in vars(places or object).items() if value is simplified]:
            yield _replaced(places, name, direct)
        if self._own_pass:
            owner: Any = self._backend if isinstance(self._backend, type) else type(self._backend)
            own = inspect.getattr_static(owner, PATTERN_PASS)
            yield _replaced(owner, PATTERN_PASS, self._pass_call(own))

    def _aot_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(aot: Any, module: Any, example_inputs: Any, **options: Any) -> Any:
            kept = dict(aot.kwargs)
            aot.kwargs.update(self._watched_compilers(kept))
            try:
                return call(aot, module, example_inputs, **options)
            finally:
                aot.kwargs.clear()
                aot.kwargs.update(kept)

        return watched

    def _aot_direct(self, simplified: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(simplified).bind(*args, **kwargs)
            given.arguments.update(self._watched_compilers(given.arguments))
            return simplified(*given.args, **given.kwargs)

        return watched

    def _watched_compilers(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The compilers among an AOT call's options, each told of before it compiles."""
        if threading.get_ident() != self._thread:
            return {}
        self._through_aot = True
        table = options.get("decompositions") or {}
        self._table = table = table() if callable(table) else table
        if self._own_pass:
            return {}
        found = {name: options[name] for name in _COMPILERS if options.get(name) is not None}
        return {name: self._watched(compiler, table) for name, compiler in found.items()}

    def _watched(self, compiler: Any, table: Mapping[Any, Any]) -> Any:
        if isinstance(compiler, SerializableAOTDispatchCompiler):  # the kind that a cache may stand before
            own = copy.copy(compiler)
            own.compiler_fn = self._watched(compiler.compiler_fn, table)
            return own

        def compile_graph(module: torch.fx.GraphModule, inputs: Any, *args: Any, **options: Any) -> Any:
            self._tell("aot", module, table)
            return compiler(module, inputs, *args, **options)

        return compile_graph

    def _pass_call(self, own: Any) -> Any:
        """The pattern pass, of whichever kind of method it is, told of before it works."""
        function = own.__func__ if isinstance(own, classmethod | staticmethod) else own

        def watched(*args: Any, **options: Any) -> Any:
            for value in (*args, *options.values()):
                if isinstance(value, torch.fx.GraphModule):
                    self._tell("pattern pass", value, self._table)
                    break
            return function(*args, **options)

        return type(own)(watched) if isinstance(own, classmethod | staticmethod) else watched


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute exchanged for the time of the block; an inherited one is inherited again afterwards."""
    had = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, had)


_MISSING = object()
