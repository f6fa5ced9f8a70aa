"""The lint rules that the text of a pattern file decides, without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fusionkit.pattern_files.lint_rules import Finding, finding
from fusionkit.pattern_files.naming import FusionNames, names_of_file

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
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
_CONFIRMED = ("confirmed", "确认")
_FLAG = re.compile(r"enable_[a-z0-9_]+")
_REGISTER = re.compile(r"register_(\w+)_graph_entries")
_DEFINES = ("custom_op", "define")


def lint_syntax(text: str) -> list[Finding]:
    """The findings of all rules of this module, by line. `text` must parse."""
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


def _out_arguments(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "out":
                    yield finding(
                        "out_argument", keyword.value.lineno, f"{ast.unparse(node.func)}(..., out=...)"
                    )


def _without_return(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in _METHODS and _is_static(node):
            own = list(_own_nodes(node))
            gives = any(isinstance(item, ast.Return) and _is_value(item.value) for item in own)
            if not gives and not any(isinstance(item, ast.Raise) for item in own):
                yield finding("returns_nothing", node.lineno, f"{node.name}() returns nothing")


def _is_static(node: FunctionNode) -> bool:
    return any(ast.unparse(item) == "staticmethod" for item in node.decorator_list)


def _is_value(value: ast.expr | None) -> bool:
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
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
            written = _rewrites_in(node)
            if written is not None:
                yield finding(
                    "hand_traversal", node.lineno, f"a loop over {ast.unparse(node.iter)} with {written}"
                )


def _walks_nodes(expression: ast.expr) -> bool:
    """Whether the iterable contains `graph.nodes`: list(...), reversed(...), .find_nodes(...)."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("nodes", "find_nodes")
        and not ast.unparse(node.value).endswith("match")
        for node in ast.walk(expression)
    )  # fmt: skip


def _rewrites_in(loop: ast.For | ast.AsyncFor) -> str | None:
    variables = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    for node in ast.walk(loop):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _REWRITES
        ):
            return f"{node.func.attr}(...)"
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr in ("args", "kwargs", "target")
                    and isinstance(target.value, ast.Name)
                    and target.value.id in variables
                ):
                    return f"{ast.unparse(target)} = ..."
    return None


def _entry_keywords(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "CallFunction":
            continue
        names = [keyword.arg for keyword in node.keywords if keyword.arg not in ("_users", None)]
        if names:
            yield finding("entry_keywords", node.lineno, f"CallFunction lists {', '.join(map(str, names))}")


def unconfirmed_flags(text: str, only: str | None = None) -> list[Finding]:
    """Flags enable_... that a class of `text` sets to False without a comment that records the confirmation.

    The comment is on the flag's line or on the comment lines right above it. `only`: the one flag to check.
    """
    lines = text.splitlines()
    findings = []
    for holder in ast.walk(ast.parse(text)):
        if not isinstance(holder, ast.ClassDef):
            continue
        for node in holder.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            flags = [
                item.id for item in targets if isinstance(item, ast.Name) and item.id.startswith("enable_")
            ]
            off = isinstance(node.value, ast.Constant) and node.value.value is False
            if flags and off and only in (None, flags[0]) and not _is_confirmed(lines, node.lineno):
                findings.append(
                    finding("unconfirmed_default_off", node.lineno, f"{flags[0]} is off by default")
                )
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
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            is_group = isinstance(target, ast.Name) and target.id.endswith("PatternGroup")
            if isinstance(target, ast.Name) and is_group and target.id.lower() != names.group.lower():
                yield finding("names", node.lineno, f"group {target.id} is not {names.group}")
        if isinstance(node, ast.FunctionDef):
            register = _REGISTER.fullmatch(node.name)
            if register and register.group(1) != names.name:
                expected = f"register_{names.name}_graph_entries"
                yield finding("names", node.lineno, f"function {node.name} is not {expected}")


def _classes(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    """Factory classes, and pattern classes with a name other than Pattern or P."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef) or node.name in ("Pattern", "P"):
            continue
        is_pattern = any(ast.unparse(item).rpartition(".")[2] == "PatternBase" for item in node.bases)
        is_factory = any(isinstance(item, ast.FunctionDef) and item.name == "create" for item in node.body)
        stem = names.pattern_class.removesuffix("Pattern")
        fits = node.name.endswith("Pattern") and stem.lower() in node.name.lower()
        if (is_pattern or is_factory) and not fits:
            yield finding(
                "names", node.lineno, f"class {node.name} is not a variant of {names.pattern_class}"
            )


def _flags(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value
        else:
            continue
        if _FLAG.fullmatch(name) and name != names.flag:
            yield finding("names", node.lineno, f"flag {name} is not {names.flag}")


def _ops(tree: ast.Module, names: FusionNames) -> Iterator[Finding]:
    """Ops that the file itself defines; an op's name may omit the model's part of the fusion's name."""
    words = names.name.split("_")
    accepted = {"_".join(words[start:]) for start in range(len(words))}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first = node.args[0]
        defines = ast.unparse(node.func).rpartition(".")[2] in _DEFINES
        if defines and isinstance(first, ast.Constant) and isinstance(first.value, str):
            op = first.value.partition("::")[2] or first.value
            op = re.split(r"[(.]", op)[0].strip()
            if op and op not in accepted:
                yield finding("names", node.lineno, f"op {op} is not {names.name}")
