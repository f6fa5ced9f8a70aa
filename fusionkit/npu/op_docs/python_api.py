"""The classes and functions that torch_npu writes in Python (optimizers, modules), with their docstrings."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass

from fusionkit.npu.op_docs.docstrings import parse_module, printable
from fusionkit.npu.op_docs.package import PackageReader
from fusionkit.npu.versions import PACKAGE

# Packages below torch_npu whose public names are API for models; the others are for the runtime.
PYTHON_PACKAGES: tuple[str, ...] = ("optim", "contrib")


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


_Definition = ast.FunctionDef | ast.ClassDef


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
