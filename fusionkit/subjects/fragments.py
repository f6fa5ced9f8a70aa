"""The source code of a primitive in a model, located by an eager run."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fusionkit.encoding import Result
from fusionkit.subjects.build import Subject
from fusionkit.subjects.recorder import Occurrence, record
from fusionkit.subjects.site_counts import counters_for
from fusionkit.subjects.source_paths import short_path

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class ParameterSource(Result):
    """The source of a value in a fragment.

    `kind`: "module_parameter", "module_buffer", "absent" (the module has the name but no tensor) or
    "function_input". `dtype` and `shape` are those of the first module seen, None for an input.
    """

    name: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SourceFragment(Result):
    """One piece of source code: qualified name, `file`, first line, text, and the modules that run it.

    `call_line`: the line of the call, where the primitive is a builtin or a norm that this code calls; else
    None. `text` is "" if Python cannot find the source (code made by exec).
    """

    primitive: str
    qualname: str
    file: str
    first_line: int
    text: str
    call_line: int | None
    parameters: tuple[ParameterSource, ...]
    modules: tuple[str, ...]


def source_fragments(subject: Subject, primitive: str) -> list[SourceFragment]:
    """Run `subject` once and return the distinct pieces of source that compute `primitive`, in call order.

    Empty if no counter applies. A piece that calls the primitive on several lines is listed once per line.
    """
    places: dict[tuple[Any, int], list[Occurrence]] = {}
    rows = counters_for(subject, (primitive,))
    for occurrence in record(subject, rows) if rows else []:
        places.setdefault((occurrence.code, occurrence.line), []).append(occurrence)
    return [_fragment(occurrences) for occurrences in places.values()]


def fragment_around(
    subject: Subject, primitive: str, path: str, line: int, modules: tuple[str, ...]
) -> SourceFragment | None:
    """The innermost function around a line of a file that `modules` run; None if the file has no function there."""
    text = "".join(linecache.getlines(path))
    innermost = _function_around(text, line)
    if innermost is None:
        return None
    qualname, function = innermost
    first = min([function.lineno, *(item.lineno for item in function.decorator_list)])
    body = "".join(text.splitlines(keepends=True)[first - 1 : function.end_lineno])
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = [item.arg for item in arguments if item is not None and item.arg != "self"]
    owner = dict(subject.model.named_modules(remove_duplicate=False)).get(modules[0]) if modules else None
    return SourceFragment(
        primitive=primitive,
        qualname=f"{Path(path).stem}.{qualname}",
        file=short_path(path),
        first_line=first,
        text=body,
        call_line=line,
        parameters=(*_own_tensors(owner, body), *(ParameterSource(n, "function_input") for n in names)),
        modules=modules,
    )


def _function_around(text: str, line: int) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The innermost function of a source text around a line, with its qualified name."""
    try:
        scopes: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    except SyntaxError:
        return None
    innermost = None
    for prefix, scope in scopes:  # grows while it is read
        for node in ast.iter_child_nodes(scope):
            if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or 0):
                continue
            name = f"{prefix}{getattr(node, 'name', '')}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                innermost = name, node
            scopes.append((f"{name}." if isinstance(node, _NAMED) else prefix, node))
    return innermost


def _fragment(occurrences: list[Occurrence]) -> SourceFragment:
    first = occurrences[0]
    code = first.code
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        text = ""
    inputs = inspect.getargs(code)
    names = [name for name in (*inputs.args, inputs.varargs, inputs.varkw) if name and name != "self"]
    sources = [*_own_tensors(first.owner, text), *(ParameterSource(name, "function_input") for name in names)]
    return SourceFragment(
        primitive=first.primitive,
        qualname=f"{first.namespace}.{code.co_qualname}",
        file=short_path(code.co_filename),
        first_line=code.co_firstlineno,
        text=text,
        call_line=None if first.line == code.co_firstlineno else first.line,
        parameters=tuple(sources),
        modules=tuple(dict.fromkeys(occurrence.module for occurrence in occurrences)),
    )


def _own_tensors(owner: nn.Module | None, text: str) -> list[ParameterSource]:
    """The parameters and buffers of `owner` that `text` reads as `self.<name>`."""
    if owner is None:
        return []
    read = set(re.findall(r"\bself\.(\w+)", text))
    sources = []
    for kind, tensors in (("module_parameter", owner._parameters), ("module_buffer", owner._buffers)):
        for name, tensor in tensors.items():
            if name not in read:
                continue
            if tensor is None:
                sources.append(ParameterSource(f"self.{name}", "absent"))
            else:
                dtype = str(tensor.dtype).removeprefix("torch.")
                sources.append(ParameterSource(f"self.{name}", kind, dtype, tuple(tensor.shape)))
    return sources
