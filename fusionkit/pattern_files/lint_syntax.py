"""The lint rules that the text of a pattern file decides, without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeVar

from fusionkit.pattern_files.lint_rules import Finding, finding
from fusionkit.pattern_files.naming import FusionNames, names_of_file

N = TypeVar("N", bound=ast.AST)

_METHODS = ("pattern", "replacement")
_ENVIRONMENT = {"os.environ", "os.getenv", "environ", "getenv", "sys.argv", "argparse", "os.environb"}
_REWRITES = {
    "erase_node",
    "replace_all_uses_with",
    "inserting_before",
    "inserting_after",
    "call_function",
    "create_node",
    "replace_input_with",
    "update_arg",
}
_PARTS = ("args", "kwargs", "target")
_CONFIRMED = ("confirmed", "确认")
_FLAG = re.compile(r"enable_[a-z0-9_]+")
_REGISTER = re.compile(r"register_(\w+)_graph_entries")
_DEFINES = ("custom_op", "define")


def lint_syntax(text: str) -> list[Finding]:
    """The findings of the rules that need no name, by line. `text` must parse."""
    tree = ast.parse(text)
    findings = [
        *_out_arguments(tree),
        *_without_return(tree),
        *_switches(tree),
        *_traversals(tree),
        *_entry_keywords(tree),
        *unconfirmed_flags(text),
    ]
    return sorted(findings, key=lambda item: item.line)


def _all(tree: ast.AST, kind: type[N]) -> Iterator[N]:
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def assigned_names(statement: ast.AST) -> list[str]:
    """The plain names that a statement assigns to."""
    own = getattr(statement, "target", None)
    targets = statement.targets if isinstance(statement, ast.Assign) else [own]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _out_arguments(tree: ast.AST) -> Iterator[Finding]:
    for call in _all(tree, ast.Call):
        for keyword in call.keywords:
            if keyword.arg == "out":
                what = f"{ast.unparse(call.func)}(..., out=...)"
                yield finding("out_argument", keyword.value.lineno, what)


def _without_return(tree: ast.AST) -> Iterator[Finding]:
    for function in _all(tree, ast.FunctionDef):
        is_static = any(ast.unparse(item) == "staticmethod" for item in function.decorator_list)
        if function.name not in _METHODS or not is_static:
            continue
        own = list(_own_nodes(function))
        values = [item.value for item in own if isinstance(item, ast.Return)]
        gives = any(value is not None and ast.unparse(value) != "None" for value in values)
        if not gives and not any(isinstance(item, ast.Raise) for item in own):
            yield finding("returns_nothing", function.lineno, f"{function.name}() returns nothing")


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of nested functions and classes."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def _switches(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{item.name}" for item in node.names] + [str(node.module)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in _ENVIRONMENT.intersection(names):
            yield finding("switch_outside_config", node.lineno, f"reads {name}")


def _traversals(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_rewrite_"):
            yield finding("hand_traversal", node.lineno, f"function {node.name} rewrites a graph by hand")
        if isinstance(node, ast.For | ast.AsyncFor) and _walks_nodes(node.iter):
            change = _first_rewrite(node)
            if change is not None:
                what = f"a loop over {ast.unparse(node.iter)} with {change}"
                yield finding("hand_traversal", node.lineno, what)


def _walks_nodes(expression: ast.expr) -> bool:
    """Whether the iterable contains `graph.nodes`: list(...), reversed(...), .find_nodes(...)."""
    return any(
        node.attr in ("nodes", "find_nodes") and not ast.unparse(node.value).endswith("match")
        for node in _all(expression, ast.Attribute)
    )


def _first_rewrite(loop: ast.For | ast.AsyncFor) -> str | None:
    """The first call or assignment in the loop that changes a graph, as text."""
    variables = {name.id for name in _all(loop.target, ast.Name)}
    for node in ast.walk(loop):
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr in _REWRITES:
            return f"{function.attr}(...)"
        for target in node.targets if isinstance(node, ast.Assign) else []:
            owner = target.value if isinstance(target, ast.Attribute) and target.attr in _PARTS else None
            if isinstance(owner, ast.Name) and owner.id in variables:
                return f"{ast.unparse(target)} = ..."
    return None


def _entry_keywords(tree: ast.AST) -> Iterator[Finding]:
    for call in _all(tree, ast.Call):
        names = [keyword.arg for keyword in call.keywords if keyword.arg not in ("_users", None)]
        if names and ast.unparse(call.func).rpartition(".")[2] == "CallFunction":
            yield finding("entry_keywords", call.lineno, f"CallFunction lists {', '.join(map(str, names))}")


def unconfirmed_flags(text: str, only: str | None = None) -> list[Finding]:
    """Flags enable_... that a class of `text` sets to False without a comment that records the confirmation.

    The comment is on the flag's line or on the comment lines right above it. `only`: the one flag to check.
    """
    lines = text.splitlines()
    findings = []
    for node in (node for holder in _all(ast.parse(text), ast.ClassDef) for node in holder.body):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        flags = [name for name in assigned_names(node) if name.startswith("enable_")]
        off = isinstance(node.value, ast.Constant) and node.value.value is False
        if flags and off and only in (None, flags[0]) and not _is_confirmed(lines, node.lineno):
            what = f"{flags[0]} is off by default"
            findings.append(finding("unconfirmed_default_off", node.lineno, what))
    return findings


def _is_confirmed(lines: list[str], line: int) -> bool:
    comments = [lines[line - 1].partition("#")[2]]
    for above in reversed(lines[: line - 1]):
        if not above.strip().startswith("#"):
            break
        comments.append(above)
    return any(word in text.lower() for text in comments for word in _CONFIRMED)


def lint_names(text: str, stem: str) -> list[Finding]:
    """Findings for every name in the file that does not derive from the file's own name `stem` (without .py).

    A variant's class name may have a further part ({Which}{Name}Pattern, {Name}{Which}Pattern); case is ignored
    (RMSNorm, RmsNorm).
    """
    names = names_of_file(stem)
    tree = ast.parse(text)
    findings = []
    if not stem.endswith("_pattern"):
        findings.append(finding("names", 1, f"file {stem}.py is not named {names.file}"))
    findings += [*_groups(tree, names), *_classes(tree, names), *_flags(tree, names), *_ops(tree, names)]
    return findings


def _groups(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    for node in tree.body:
        for name in assigned_names(node):
            if name.endswith("PatternGroup") and name.lower() != names.group.lower():
                yield finding("names", node.lineno, f"group {name} is not {names.group}")
        register = _REGISTER.fullmatch(node.name) if isinstance(node, ast.FunctionDef) else None
        if register and register.group(1) != names.name:
            expected = f"register_{names.name}_graph_entries"
            yield finding("names", node.lineno, f"function {register.group()} is not {expected}")


def _classes(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    """Factory classes, and pattern classes with a name other than Pattern or P."""
    stem = names.pattern_class.removesuffix("Pattern").lower()
    for node in _all(tree, ast.ClassDef):
        is_pattern = any(ast.unparse(item).rpartition(".")[2] == "PatternBase" for item in node.bases)
        is_factory = any(isinstance(item, ast.FunctionDef) and item.name == "create" for item in node.body)
        fits = node.name.endswith("Pattern") and stem in node.name.lower()
        if (is_pattern or is_factory) and not fits and node.name not in ("Pattern", "P"):
            what = f"class {node.name} is not a variant of {names.pattern_class}"
            yield finding("names", node.lineno, what)


def _flags(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Constant):
            name = node.attr if isinstance(node, ast.Attribute) else node.value
            if isinstance(name, str) and _FLAG.fullmatch(name) and name != names.flag:
                yield finding("names", node.lineno, f"flag {name} is not {names.flag}")


def _ops(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    """Ops that the file itself defines; an op's name may omit the model's part of the fusion's name."""
    words = names.name.split("_")
    accepted = {"_".join(words[start:]) for start in range(len(words))}
    for call in _all(tree, ast.Call):
        first = call.args[0] if call.args else None
        defines = ast.unparse(call.func).rpartition(".")[2] in _DEFINES
        if defines and isinstance(first, ast.Constant) and isinstance(first.value, str):
            op = re.split(r"[(.]", first.value.partition("::")[2] or first.value)[0].strip()
            if op and op not in accepted:
                yield finding("names", call.lineno, f"op {op} is not {names.name}")
