"""Flags for fused or NPU code that a project defines, whether or not anything asks them yet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fusionkit.identify.reading import LARGEST_BYTES
from fusionkit.identify.source.project import imported_file

_SPEAKS = re.compile(r"(^|_)(npu|fused|fusion)(_|$)", re.IGNORECASE)
_WORD = re.compile(rb"(?<![a-z])(npu|fused|fusion)(?![a-z])", re.IGNORECASE)
_OF_OTHER = re.compile(r"available|device|version|fused_qkv|fusion_layer|qkv", re.IGNORECASE)
_HOLDERS = {"config": re.compile("Config"), "args": re.compile(r"Arg(ument)?s")}
_BESIDE = ("*config*.py", "*arg*.py")  # of the packages around a file
_MOST_LEVELS = 4
_MOST_FILES = 40  # of a folder that are read


@dataclass(frozen=True, slots=True)
class Flag:
    """`base`: the name that holds it in code, config or args; `owner`: the class that defines it, "" for a parser."""

    base: str
    name: str
    owner: str
    where: str


def is_switch(name: str) -> bool:
    """Whether a name says that it turns fused or NPU code on."""
    return bool(_SPEAKS.search(name)) and not _OF_OTHER.search(name)


@lru_cache(maxsize=512)
def speaks(path: Path) -> bool:
    """Whether a file says a word of fused or NPU code at all: most do not, and need not be parsed."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_BYTES:  # a pipe or a device has no end
            return False
        return bool(_WORD.search(path.read_bytes()))
    except OSError:
        return False


@lru_cache(maxsize=128)
def flags_around(folder: Path) -> tuple[Flag, ...]:
    """The flags that the configurations and argument parsers of a folder and of the packages around it define."""
    paths = dict.fromkeys(sorted(folder.glob("*.py"))[:_MOST_FILES])
    for level in list(folder.parents)[:_MOST_LEVELS]:
        if not (folder / "__init__.py").is_file():
            break
        folder = level
        paths |= dict.fromkeys(sorted(path for pattern in _BESIDE for path in level.glob(pattern)))
    return tuple(flag for path in paths for flag in _flags(path))


@lru_cache(maxsize=512)
def _flags(path: Path) -> tuple[Flag, ...]:
    file = imported_file(path) if speaks(path) else None
    found: dict[tuple[str, str, str], Flag] = {}
    for node in ast.walk(file.tree) if file is not None else ():
        for base, name, owner in _defined(node):
            if is_switch(name):
                line = getattr(node, "lineno", 1)
                found.setdefault((base, name, owner), Flag(base, name, owner, f"{path.name}:{line}"))
    return tuple(found.values())


def _defined(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """(base, name, owner) of the flags that a class, or a call of add_argument, defines."""
    if isinstance(node, ast.ClassDef):
        bases = [base for base, held in _HOLDERS.items() if held.search(node.name)]
        for name in _truths(node) if bases else ():
            yield bases[0], name, node.name
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_argument"
    ):
        words = [
            item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)
        ]
        stored = any(
            item.arg == "action"
            and isinstance(item.value, ast.Constant)
            and str(item.value.value).startswith("store_")
            for item in node.keywords
        )
        for word in words if stored else ():
            yield "args", word.lstrip("-").replace("-", "_"), ""


def _truths(node: ast.ClassDef) -> Iterator[str]:
    """The fields and parameters of a configuration whose default is True or False."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and _is_truth(item.value):
            yield item.target.id
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name) and _is_truth(item.value):
            yield item.targets[0].id
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            yield from truths_of(item)


def truths_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The parameters of a function whose default is True or False."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    pairs = [*zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [
        (item, default) for item, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default
    ]
    yield from (item.arg for item, default in pairs if _is_truth(default))


def _is_truth(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)
