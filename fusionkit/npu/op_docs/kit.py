"""The kit's own information on an op: schemas, and the rules that its CPU kernel enforces."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.npu.op_docs.notes import NOTES
from fusionkit.npu.op_docs.online import KNOWN_PAGES


@dataclass(frozen=True, slots=True)
class KitRule(Result):
    """A rule on an argument that the CPU kernel of target cpu enforces, and its source."""

    argument: str
    rule: str
    source: str


@dataclass(frozen=True, slots=True)
class KitOp(Result):
    """An op of target cpu: its torch_npu schemas, one per overload, and its rules."""

    schemas: tuple[str, ...]
    rules: tuple[KitRule, ...]


def kit_op(name: str) -> KitOp | None:
    """The op `name` of target cpu; None if the kit has no kernel for it."""
    from fusionkit.npu.constraints import CONSTRAINTS
    from fusionkit.npu.schemas import SCHEMAS

    schemas = {op: schema for op, schema in SCHEMAS.items() if name in (op, op.partition(".")[0])}
    rules = (KitRule(row.argument, row.rule, row.source) for row in CONSTRAINTS if row.op in schemas)
    return KitOp(tuple(schemas.values()), tuple(dict.fromkeys(rules))) if schemas else None


def kit_names() -> tuple[str, ...]:
    """The names for which the kit has a kernel, a note or a document address, sorted."""
    from fusionkit.npu.schemas import SCHEMAS

    kernels = (op.partition(".")[0] for op in SCHEMAS)
    return tuple(sorted({*kernels, *KNOWN_PAGES, *(op for note in NOTES for op in note.ops)}))
