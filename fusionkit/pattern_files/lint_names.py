"""The lint rule `names`: file, classes, group, flag and op of a fusion derive from one name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fusionkit.pattern_files.lint_rules import Finding, finding
from fusionkit.pattern_files.naming import FusionNames, names_of_file

_FLAG = re.compile(r"enable_[a-z0-9_]+")
_REGISTER = re.compile(r"register_(\w+)_graph_entries")
_DEFINES = ("custom_op", "define")


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
