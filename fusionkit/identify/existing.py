"""torch_npu in the scanned code already: calls of its ops and the conditions they stand under, to be reused by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fusionkit.identify.candidates import Candidate, Existing
from fusionkit.identify.ops import OPS
from fusionkit.identify.source.files import SourceFile, source_lines

_MOST = 3  # uses shown with one candidate
_LONGEST = 120  # characters of a source line

# Names that belong to an op besides its own: later versions, and wrappers around it.
_ALSO = {
    "npu_fusion_attention_v2": "npu_fusion_attention",
    "npu_fusion_attention_v3": "npu_fusion_attention",
    "npu_moe_token_permute": "npu_grouped_matmul",
    "npu_moe_token_unpermute": "npu_grouped_matmul",
    "npu_fast_gelu": "npu_gelu",
    "npu_gemma_rms_norm": "npu_rms_norm",
    "npu_fused_adamw": "NpuFusedAdamW",
}
_OF_NAME = {**{op.name: op.name for op in OPS if op.api}, **_ALSO}
_MARK = re.compile(r"(?<![a-z])npu", re.IGNORECASE)  # and not "input"


def uses_of_file(file: SourceFile, shown: str = "") -> tuple[Existing, ...]:
    """Every call of an op of ops.OPS in torch_npu's spelling, with the innermost condition it stands under."""
    if not _MARK.search(file.text):
        return ()
    name, lines = shown or str(file.path), source_lines(file.text)
    found = {
        (op, item.lineno): guard
        for node, guard in _guarded(file.tree.body, "")
        for item in ast.walk(node)
        if isinstance(item, ast.Call) and (op := _OF_NAME.get(_last_name(item.func), ""))
    }
    return tuple(
        Existing(op, name, line, lines[line - 1].strip()[:_LONGEST], guard)
        for (op, line), guard in sorted(found.items(), key=lambda use: use[0][1])
    )


def with_existing(candidates: Iterable[Candidate], uses: Sequence[Existing]) -> tuple[Candidate, ...]:
    """The candidates, each with the uses of its op, those of its own file and folder first."""
    by_op: dict[str, list[Existing]] = {}
    for use in uses:
        by_op.setdefault(use.op, []).append(use)
    return tuple(_with_uses(candidate, by_op.get(candidate.op, [])) for candidate in candidates)


def _with_uses(candidate: Candidate, uses: list[Existing]) -> Candidate:
    near = sorted(uses, key=lambda use: (-_shared_folders(use.file, candidate.file), use.file, use.line))
    return replace(candidate, existing=tuple(near[:_MOST])) if near else candidate


def _shared_folders(one: str, other: str) -> int:
    """How many leading parts two paths share."""
    pairs = list(zip(one.split("/"), other.split("/"), strict=False))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _guarded(body: Iterable[ast.stmt], guard: str) -> Iterable[tuple[ast.AST, str]]:
    """Every statement, and expression in the head of one, with the condition of the innermost `if` around it."""
    for node in body:
        inner = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
        inner += [handler.body for handler in getattr(node, "handlers", [])]
        inner += [case.body for case in getattr(node, "cases", [])]
        if not any(inner):
            yield node, guard
            continue
        for expression in (item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)):
            yield expression, guard
        told = ast.unparse(node.test) if isinstance(node, ast.If) else guard
        yield from _guarded(inner[0], told)
        for part in inner[1:]:
            yield from _guarded(part, f"not ({told})" if isinstance(node, ast.If) else guard)


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
