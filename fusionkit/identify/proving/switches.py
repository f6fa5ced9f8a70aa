"""What makes the fused branch run: the conditions of the rewritten text, turned on by name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

AVAILABILITY = frozenset({"is_torch_npu_available", "is_npu_available", "is_torch_npu_installed"})
"""Functions that say whether torch_npu is there; sources: transformers.utils, diffusers.utils, accelerate."""

_SWITCH = re.compile(r"npu|fused|ascend", re.IGNORECASE)  # what a name that switches a fused op on speaks of


class Switches:
    """The switches of one rewritten text; `asked` counts how often its availability function was called."""

    def __init__(self, new_text: str, original_text: str) -> None:
        self.asked = 0
        self._text = new_text
        old = self._old = {ast.dump(test) for test in _tests(original_text)}
        self._tests = [test for test in _tests(new_text) if ast.dump(test) not in old] or _tests(new_text)

    def available(self, *_args: Any, **_kwargs: Any) -> bool:
        """Stands for is_torch_npu_available."""
        self.asked += 1
        return True

    def marked(self, name: str) -> ast.Module:
        """The syntax tree of the text, where every branch of a new condition begins with a call of `name`."""
        tree = ast.parse(self._text)
        for node in self._new_branches(tree):
            call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
            node.body.insert(0, ast.copy_location(call, node.body[0]))
        return ast.fix_missing_locations(tree)

    def read_in_branches(self) -> frozenset[str]:
        """Names that the branches of new conditions read."""
        inside = (item for node in self._new_branches(ast.parse(self._text)) for item in node.body)
        return frozenset(node.id for item in inside for node in ast.walk(item) if isinstance(node, ast.Name))

    def _new_branches(self, tree: ast.Module) -> list[ast.If]:
        return [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.dump(node.test) not in self._old
        ]

    def turn_on_environment(self) -> None:
        """Set the environment variables that the conditions read."""
        for node in self._walk(ast.Constant):
            text = getattr(node, "value", None)
            if isinstance(text, str) and text.isupper() and _SWITCH.search(text):
                os.environ[text] = "1"

    def turn_on_names(self, module: ModuleType) -> None:
        """Functions and flags of the module that the conditions name."""
        held = vars(module)
        for node in self._walk(ast.Name):
            name = getattr(node, "id", "")
            if name in AVAILABILITY:
                held[name] = self.available
            elif _SWITCH.search(name) and isinstance(held.get(name), bool):
                held[name] = True

    def turn_on_attributes(self, *owners: Any) -> None:
        """Attributes such as `use_fused_rmsnorm`, on the objects (a module, a configuration) that have them."""
        for node in self._walk(ast.Attribute):
            name = getattr(node, "attr", "")
            for owner in owners:
                if _SWITCH.search(name) and getattr(owner, name, None) is False:
                    setattr(owner, name, True)

    def _walk(self, kind: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for test in self._tests for node in ast.walk(test) if isinstance(node, kind))


def _tests(text: str) -> list[ast.expr]:
    """The tests of every `if` and conditional expression."""
    return [node.test for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.If, ast.IfExp))]


def rewritten_symbol(symbol: str, original_text: str, new_text: str) -> str:
    """What has to be called so that the rewritten code runs: the class, where another of its methods was rewritten."""
    name, _, method = symbol.partition(".")
    old, new = (_methods(text, name) for text in (original_text, new_text))
    if not method or old.get(method) != new.get(method):
        return symbol
    changed = [item for item in new if item in old and new[item] != old[item]]
    return name if any(item in ("forward", "__call__") for item in changed) else symbol


def _methods(text: str, name: str) -> dict[str, str]:
    """Method -> its syntax tree as text, for the class `name`."""
    classes = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return {
        item.name: ast.dump(item)
        for node in classes
        for item in node.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
