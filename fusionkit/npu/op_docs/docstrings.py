"""The docstrings that torch_npu registers for its ops, read from the calls that register them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from fusionkit.errors import MisuseError
from fusionkit.npu.op_docs.package import PackageReader

# File of the wheel, function that registers (name, docstring), prefix of the op's name below torch_npu.
DOC_MODULES: tuple[tuple[str, str, str], ...] = (
    ("torch_npu/_op_plugin_docs.py", "_add_torch_npu_docstr", ""),
    ("torch_npu/op_plugin/atb/_atb_api_docs.py", "_add_torch_npu_atb_docstr", "atb."),
)

# Control characters that come from unintended escapes ("\begin" in a string that is not raw).
_MEANT = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
_PRINTABLE = {
    code: _MEANT.get(chr(code)) for code in (*range(32), *range(127, 160)) if chr(code) not in ("\n", "\t")
}


@dataclass(frozen=True, slots=True)
class DocText:
    """A docstring, its file:line in the wheel, and those of the earlier docstrings that it replaces."""

    text: str
    where: str
    superseded: tuple[str, ...] = ()


def read_docstrings(package: PackageReader) -> dict[str, DocText]:
    """Name below torch_npu -> docstring. The last registration of a name is used, as at run time."""
    docstrings: dict[str, DocText] = {}
    for file, function, prefix in DOC_MODULES:
        for name, text, line in _registrations(parse_module(package, file), function):
            earlier = docstrings.get(prefix + name)
            before = (*earlier.superseded, earlier.where) if earlier else ()
            docstrings[prefix + name] = DocText(printable(text), f"{file}:{line}", before)
    return docstrings


def parse_module(package: PackageReader, file: str) -> ast.Module:
    """Parse a Python file of the wheel; an empty module if it is absent. Raises MisuseError with the line."""
    source = package.read(file) or b""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise MisuseError(f"{package.path}: {file} line {line} is not Python; give another wheel") from error


def printable(text: str) -> str:
    """Remove control characters; restore those that come from an unescaped "\\begin"."""
    return text.translate(_PRINTABLE)


def _registrations(tree: ast.Module, function: str) -> Iterator[tuple[str, str, int]]:
    """(name, docstring, line) of every call of `function` with two strings, in the order of the file."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: call.lineno):
        if not (isinstance(call.func, ast.Name) and call.func.id == function and len(call.args) >= 2):
            continue
        name, text = (
            argument.value if isinstance(argument, ast.Constant) else None for argument in call.args[:2]
        )
        if isinstance(name, str) and isinstance(text, str):
            yield name, text, call.lineno
