"""Watching the graphs of a torch.compile backend that is not the kit's."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch.fx
from torch._dynamo.backends import common
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

from fusionkit.capture.graphs import copy_graph_module
from fusionkit.errors import MisuseError, near_names
from fusionkit.subjects.load import UserCode

Backend = Callable[..., Any]
# Called with each graph: its level ("aot", "pattern pass" or "dynamo"), the graph, its decomposition table.
Look = Callable[[str, torch.fx.GraphModule, Mapping[Any, Any]], None]

# The method in which MindIE-SD's backend class applies its patterns (MindIE-SD compilation/mindie_sd_backend.py).
PATTERN_PASS = "apply_pattern_match_passes"

_COMPILERS = ("fw_compiler", "bw_compiler", "inference_compiler")

# torch's AOT entry is patched during one compile. The patch affects the whole process, so one probe at a time.
_ONE_AT_A_TIME = threading.RLock()


def resolve_backend(text: str | Backend) -> Backend:
    """The backend named by `module:callable` or by a name in torch's list of backends; a callable is one itself.

    The module is imported from sys.path and the working folder; a class is instantiated. Raises MisuseError, one
    line, for any other name.
    """
    if not isinstance(text, str):
        return text
    if ":" not in text:
        names = torch._dynamo.list_backends(None)
        if text not in names:
            raise MisuseError(
                f"backend '{text}' is unknown; {near_names(text, names)}; or give your own as module:callable"
            )
        return torch._dynamo.lookup_backend(text)
    module_name, _, attribute = text.partition(":")
    with _working_folder(), UserCode(f"backend '{text}': importing {module_name} raised"):
        module = importlib.import_module(module_name)
    backend = getattr(module, attribute, None)
    if isinstance(backend, type):
        with UserCode(f"backend '{text}': {attribute}() raised"):
            backend = backend()
    if not callable(backend):
        raise MisuseError(
            f"backend '{text}': {module_name} has no callable '{attribute}'; name a backend of it"
        )
    return backend  # type: ignore[no-any-return]


@contextmanager
def foreign_code(name: str, subject: str) -> Iterator[None]:
    """Turn an error of a backend, or of the code that it compiled, into one MisuseError; FusionKitErrors pass."""
    with UserCode(f"backend '{name}': compiling and running {subject or 'the model'} with it raised"):
        try:
            yield
        except BackendCompilerFailed as error:
            raise error.inner_exception from None


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
    """Wraps `backend` and calls `look` with each graph before the backend's own compiler gets it.

    `look` gets the input graphs of MindIE-SD's pattern pass if the backend has one, else those of the inner
    compilers if the backend uses AOT autograd, else dynamo's graph. `received` counts the graphs from dynamo,
    `unseen` those of them for which the backend returned without calling its compiler, as on a compile-cache hit.
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
        """Compile one graph; torch.compile calls this."""
        self.received += 1
        original = copy_graph_module(module)
        with _ONE_AT_A_TIME, ExitStack() as stack:
            self._thread, self._seen, self._through_aot = threading.get_ident(), False, False
            stack.callback(setattr, self, "_thread", 0)
            for patch in self._patches():
                stack.enter_context(patch)
            compiled = self._backend(module, example_inputs, **options)
            if not self._seen and (self._through_aot or self._own_pass):
                self.unseen += 1
            elif not self._seen:
                self._look("dynamo", original, {})
        return compiled

    def _show(self, level: str, module: torch.fx.GraphModule, table: Mapping[Any, Any]) -> None:
        if threading.get_ident() == self._thread:
            self._seen = True
            self._look(level, module, table)

    def _patches(self) -> Iterator[contextlib.AbstractContextManager[Any]]:
        yield mock.patch.object(common.AotAutograd, "__call__", self._aot_call(common.AotAutograd.__call__))
        simplified = aot_autograd.aot_module_simplified
        direct = self._aot_direct(simplified)
        places: Any = inspect.getmodule(self._backend) or inspect.getmodule(type(self._backend))
        for name in [key for key, value in vars(places or object).items() if value is simplified]:
            yield mock.patch.object(places, name, direct)
        if self._own_pass:
            owner: Any = self._backend if isinstance(self._backend, type) else type(self._backend)
            own = inspect.getattr_static(owner, PATTERN_PASS)
            yield mock.patch.object(owner, PATTERN_PASS, self._pass_call(own))

    def _aot_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(aot: Any, module: Any, example_inputs: Any, **options: Any) -> Any:
            with mock.patch.dict(aot.kwargs, self._watched_compilers(aot.kwargs)):
                return call(aot, module, example_inputs, **options)

        return watched

    def _aot_direct(self, simplified: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(simplified).bind(*args, **kwargs)
            given.arguments.update(self._watched_compilers(given.arguments))
            return simplified(*given.args, **given.kwargs)

        return watched

    def _watched_compilers(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The inner compilers among an AOT call's options, each wrapped to show its graph before it compiles."""
        if threading.get_ident() != self._thread:
            return {}
        self._through_aot = True
        table = options.get("decompositions") or {}
        self._table = table = table() if callable(table) else table
        if self._own_pass:
            return {}
        compilers = {name: options[name] for name in _COMPILERS if options.get(name) is not None}
        return {name: self._watched(compiler, table) for name, compiler in compilers.items()}

    def _watched(self, compiler: Any, table: Mapping[Any, Any]) -> Any:
        if isinstance(compiler, SerializableAOTDispatchCompiler):  # a compiler with a cache in front of it
            own = copy.copy(compiler)
            own.compiler_fn = self._watched(compiler.compiler_fn, table)
            return own

        def compile_graph(module: torch.fx.GraphModule, inputs: Any, *args: Any, **options: Any) -> Any:
            self._show("aot", module, table)
            return compiler(module, inputs, *args, **options)

        return compile_graph

    def _pass_call(self, own: Any) -> Any:
        """The pattern pass (a function, class method or static method), wrapped to show its graph before it runs."""
        function = own.__func__ if isinstance(own, classmethod | staticmethod) else own

        def watched(*args: Any, **options: Any) -> Any:
            for value in (*args, *options.values()):
                if isinstance(value, torch.fx.GraphModule):
                    self._show("pattern pass", value, self._table)
                    break
            return function(*args, **options)

        return type(own)(watched) if isinstance(own, classmethod | staticmethod) else watched
