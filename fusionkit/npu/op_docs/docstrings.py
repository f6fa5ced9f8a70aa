"""The docstrings of torch_npu: those that it registers for its ops, and those of its Python classes and functions.

Both are read from the source: the calls that register, and the definitions (optimizers, modules).
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from fusionkit.errors import MisuseError
from fusionkit.npu.op_docs.package import PackageReader
from fusionkit.npu.versions import PACKAGE

# File of the wheel, function that registers (name, docstring), prefix of the op's name below torch_npu.
DOC_MODULES: tuple[tuple[str, str, str], ...] = (
    ("torch_npu/_op_plugin_docs.py", "_add_torch_npu_docstr", ""),
    ("torch_npu/op_plugin/atb/_atb_api_docs.py", "_add_torch_npu_atb_docstr", "atb."),
)

# Packages below torch_npu whose public names are API for models; the others are for the runtime.
PYTHON_PACKAGES: tuple[str, ...] = ("optim", "contrib")

_Definition = ast.FunctionDef | ast.ClassDef

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
        match call:
            case ast.Call(ast.Name(id=called), [ast.Constant(str(name)), ast.Constant(str(text)), *_]):
                if called == function:
                    yield name, text, call.lineno


@dataclass(frozen=True, slots=True)
class PythonApi:
    """A class or function: how it is called, its docstring ("" for none), and file:line of the wheel."""

    signature: str
    text: str
    where: str


def read_python_api(package: PackageReader) -> dict[str, PythonApi]:
    """Public name below torch_npu ("optim.NpuFusedAdamW") -> signature and docstring from the source.

    Includes the names that a package's __init__ imports from its own modules.
    """
    api: dict[str, PythonApi] = {}
    for folder in PYTHON_PACKAGES:
        for name, (file, definition) in _exported(package, f"{PACKAGE}/{folder}").items():
            call = f"{folder}.{name}"
            signature = f"{PACKAGE}.{call}({_parameters(definition)})"
            text = inspect.cleandoc(ast.get_docstring(definition) or "")
            api[call] = PythonApi(signature, printable(text), f"{file}:{definition.lineno}")
    return api


def _exported(package: PackageReader, folder: str) -> dict[str, tuple[str, _Definition]]:
    """Name that a package's __init__ imports from below it -> (file, definition)."""
    exported: dict[str, tuple[str, _Definition]] = {}
    for node in parse_module(package, f"{folder}/__init__.py").body:
        if not isinstance(node, ast.ImportFrom) or node.level != 1 or not node.module:
            continue
        below = f"{folder}/{node.module.replace('.', '/')}"
        known = (
            _exported(package, below) if package.read(f"{below}/__init__.py") else _defined(package, below)
        )
        for alias in node.names:
            name = alias.asname or alias.name
            if not name.startswith("_") and alias.name in known:
                exported[name] = known[alias.name]
    return exported


def _defined(package: PackageReader, module: str) -> dict[str, tuple[str, _Definition]]:
    file = f"{module}.py"
    body = parse_module(package, file).body
    return {node.name: (file, node) for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _parameters(definition: _Definition) -> str:
    """The parameters of a function, or of a class's __init__ without self; "..." for a class that has none."""
    if isinstance(definition, ast.FunctionDef):
        return ast.unparse(definition.args)
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = node.args
            (arguments.posonlyargs or arguments.args)[:1] = []
            return ast.unparse(arguments)
    return "..."
