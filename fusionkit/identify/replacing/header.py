"""The head of a rewritten file: the guarded import of torch_npu, and the import of what the condition asks."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.statements import STEP, indented_by
from fusionkit.identify.replacing.switches import AVAILABLE, Switch
from fusionkit.identify.source.files import SourceFile, source_lines


def head_lines(file: SourceFile, switch: Switch) -> tuple[int, list[str]]:
    """(line after which they stand, the lines) that the fused branches of a file need at its top."""
    lines = []
    if switch.imported and AVAILABLE not in file.modules:
        lines.append(f"from {switch.imported} import {AVAILABLE}\n")
    if "torch_npu" not in file.modules:
        lines += _guarded(switch)
    step = _step(file)
    return _last_import(file.tree), [indented_by(line, step) for line in lines]


def _step(file: SourceFile) -> str:
    """What the first block of the file that is written below its head is indented with."""
    lines = source_lines(file.text)
    for node in file.tree.body:
        body = getattr(node, "body", None)
        if body and isinstance(body[0], ast.stmt) and body[0].lineno > node.lineno:
            line = lines[body[0].lineno - 1]
            return line[: len(line) - len(line.lstrip(" \t"))] or STEP
    return STEP


def _guarded(switch: Switch) -> list[str]:
    """Import torch_npu where it is there; a question that may be asked at import time guards it, else the attempt."""
    asked = next((text for text in switch.text.split(" and ") if text.endswith("npu_available()")), "")
    if asked:
        return ["\n", f"if {asked}:\n", "    import torch_npu\n"]
    return ["\n", "try:\n", "    import torch_npu\n", "except ImportError:\n", "    torch_npu = None\n"]


def _last_import(tree: ast.Module) -> int:
    """The last line of the imports that stand at the top, before any class or function."""
    last = 0
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, (ast.Import, ast.ImportFrom)) or (is_text and not last):
            last = node.end_lineno or node.lineno
    return last
