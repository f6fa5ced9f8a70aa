"""A source file without running it: its imports, classes and functions."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fusionkit.identify.source.evaluate import Flow, FunctionNode, evaluate
from fusionkit.identify.source.values import Value


class SourceFile:
    """One parsed file. `flow` of a function is worked out once. `data`: the bytes that `text` was read from, if any.

    `functions`, `classes`: by name, the last of several; `every_function`, `every_class`: also those that stand in
    another branch of an `if` or `try` under the same name.
    """

    def __init__(
        self, path: Path, text: str, tree: ast.Module | None = None, data: bytes | None = None
    ) -> None:
        self.path = path
        self.text = text
        self.data = data
        self.tree = ast.parse(text) if tree is None else tree
        self._flows: dict[int, Flow] = {}
        self.modules: dict[str, str] = {}
        self.functions: dict[str, FunctionNode] = {}
        self.classes: dict[str, SourceClass] = {}
        self._defined: dict[tuple[int, str], FunctionNode | SourceClass] = {}
        for node, block in _top_level(self.tree.body):
            self._add(node, block)

    def _add(self, node: ast.stmt, block: int) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                bound = item.asname or item.name.partition(".")[0]
                self.modules[bound] = item.name if item.asname else bound
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            joint = "" if source.endswith(".") or not source else "."
            for item in node.names:
                self.modules[item.asname or item.name] = f"{source}{joint}{item.name}"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions[node.name] = self._defined[block, node.name] = node
        elif isinstance(node, ast.ClassDef):
            self.classes[node.name] = self._defined[block, node.name] = SourceClass(self, node)

    @property
    def every_function(self) -> list[FunctionNode]:
        """The functions; of one name in one block the last."""
        return [item for item in self._defined.values() if not isinstance(item, SourceClass)]

    @property
    def every_class(self) -> list[SourceClass]:
        """The classes; of one name in one block the last."""
        return [item for item in self._defined.values() if isinstance(item, SourceClass)]

    def class_at(self, name: str, line: int) -> SourceClass | None:
        """The class `name` that holds a line; where none does, the last of that name."""
        inside = (cls for cls in self.every_class if cls.name == name and cls.holds(line))
        return next(inside, self.classes.get(name))

    def nth(self, name: str, line: int) -> int:
        """Which of the definitions called `name` a line belongs to, from 1 on."""
        nodes = (*self.every_function, *(cls.node for cls in self.every_class))
        return max(1, sum(node.name == name and node.lineno <= line for node in nodes))

    def flow(self, function: FunctionNode) -> Flow:
        """What a function of this file computes."""
        known = self._flows.get(id(function))
        if known is None:
            known = self._flows[id(function)] = evaluate(function, self.modules)
        return known


@dataclass(eq=False)
class SourceClass:
    """One class: its methods, its bases as they are written, and what `__init__` puts into attributes."""

    file: SourceFile
    node: ast.ClassDef
    methods: dict[str, FunctionNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for item in self.node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.methods.setdefault(item.name, item)

    @property
    def name(self) -> str:
        """The class's name."""
        return self.node.name

    def holds(self, line: int) -> bool:
        """Whether a line of the file is one of the class."""
        return self.node.lineno <= line <= (self.node.end_lineno or line)

    @cached_property
    def bases(self) -> list[str]:
        """Dotted names of the bases, as the file's imports tell them."""
        return [dotted_name(base, self.file.modules) for base in self.node.bases]

    @cached_property
    def attributes(self) -> dict[str, Value]:
        """Attribute -> what `__init__` gives it, `either` where branches differ."""
        start = self.methods.get("__init__")
        if start is None:
            return {}
        left = self.file.flow(start).attributes
        own = start.args.args[0].arg if start.args.args else "self"
        return {name.partition(".")[2]: value for name, value in left.items() if name.startswith(f"{own}.")}

    def builds(self, name: str) -> bool:
        """Whether `__init__` builds an object of the class `name`."""
        return name in self._called

    @cached_property
    def _called(self) -> frozenset[str]:
        start = self.methods.get("__init__")
        calls = [] if start is None else [node for node in ast.walk(start) if isinstance(node, ast.Call)]
        return frozenset(call.func.id for call in calls if isinstance(call.func, ast.Name))

    @cached_property
    def decorators(self) -> list[str]:
        """Names of the decorators, as written."""
        return decorators_of(self.node)


def decorators_of(node: ast.ClassDef | FunctionNode) -> list[str]:
    """The decorators of a class or function as source text."""
    return [ast.unparse(item) for item in node.decorator_list]


def source_lines(text: str) -> list[str]:
    """The lines of a source text as Python counts them, ends kept: a form feed or U+2028 ends no line."""
    return io.StringIO(text, newline="\n").readlines()


def dotted_name(node: ast.expr, modules: dict[str, str]) -> str:
    """The dotted name of an expression with its first part as imported; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Subscript):  # Generic[T]
        return dotted_name(node.value, modules)
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([modules.get(node.id, node.id), *reversed(parts)])


def _top_level(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, int]]:
    """Statements of a module with the block that they stand in, those under `if`, `try` and `with` included."""
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.TryStar | ast.With):
            parts = [node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
            parts[1:1] = [handler.body for handler in getattr(node, "handlers", [])]
            for part in parts:
                yield from _top_level(part)
        else:
            yield node, id(body)
