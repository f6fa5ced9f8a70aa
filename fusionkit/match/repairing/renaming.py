"""The names of a pattern file's group, classes and register function, derived from the name of another file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping

from fusionkit.match.repairing.writing import free_name
from fusionkit.pattern_files.lint_syntax import assigned_names
from fusionkit.pattern_files.naming import FusionNames

_REGISTER = re.compile(r"register_\w+_graph_entries")
_FREE = ("Pattern", "P")  # the names of a pattern class that a factory makes


def rename(text: str, groups: Collection[str], names: FusionNames) -> tuple[str, dict[str, str]]:
    """The text of a pattern file with the names of another fusion, and old name -> new name of each renamed one.

    The names that lint checks: the group, the classes of patterns and factories, and the register function. Texts,
    the variants' own names among them, stay. A file with several groups, or one that it imports, stays as it is.
    """
    tree = ast.parse(text)
    assigned = {name for node in tree.body for name in assigned_names(node)}
    if len(groups) != 1 or not assigned.issuperset(groups):
        return text, {}
    (group,) = groups
    renamed = {group: names.group}
    old = group.removesuffix("Group").removesuffix("Pattern")
    for name in _classes(tree):
        new = _renamed_class(name, old, names)
        if new != name:
            renamed[name] = free_name(new.removesuffix("Pattern"), _stems(renamed)) + "Pattern"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _REGISTER.fullmatch(node.name):
            renamed[node.name] = f"register_{names.name}_graph_entries"
    renamed = {name: new for name, new in renamed.items() if name != new}
    return _replaced(text, renamed), renamed


def _stems(renamed: Mapping[str, str]) -> set[str]:
    return {new.removesuffix("Pattern") for new in renamed.values()}


def _classes(tree: ast.Module) -> Iterator[str]:
    """Names of pattern and factory classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name not in _FREE:
            is_pattern = any(ast.unparse(item).rpartition(".")[2] == "PatternBase" for item in node.bases)
            is_factory = any(
                isinstance(item, ast.FunctionDef) and item.name == "create" for item in node.body
            )
            if is_pattern or is_factory or node.name.endswith("Pattern"):
                yield node.name


def _renamed_class(name: str, old: str, names: FusionNames) -> str:
    new = names.pattern_class.removesuffix("Pattern")
    if name.endswith("Pattern") and new.lower() in name.lower():
        return name
    stem = name.removesuffix("Pattern")
    place = re.search(re.escape(old), stem, re.IGNORECASE) if old else None
    stem = f"{stem}{new}" if place is None else stem[: place.start()] + new + stem[place.end() :]
    return f"{stem}Pattern"


def _replaced(text: str, renamed: Mapping[str, str]) -> str:
    """The text with these identifiers renamed, in `__all__` too; attributes and other texts stay."""
    lines = text.splitlines(keepends=True)
    edits = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and before != "." and token.string in renamed:
            edits.append((token.start, token.end, renamed[token.string]))
        elif token.type == tokenize.STRING and token.string[1:-1] in renamed:
            edits.append((token.start, token.end, f'"{renamed[token.string[1:-1]]}"'))
        before = token.string
    for (row, start), (_, end), new in reversed(edits):
        lines[row - 1] = lines[row - 1][:start] + new + lines[row - 1][end:]
    return "".join(lines)
