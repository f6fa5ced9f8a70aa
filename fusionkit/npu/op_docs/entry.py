"""An entry of torch_npu's API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionkit.encoding import Result
from fusionkit.npu.op_docs.kit import KitOp
from fusionkit.npu.op_docs.notes import Note
from fusionkit.npu.op_docs.online import online_folder, online_page
from fusionkit.npu.op_docs.registrations import ApiSchema
from fusionkit.npu.op_docs.sections import DocSection

SCHEMA = "fusionkit.api-show/1"

# Sections that are reported as not found if an entry lacks them.
_WANTED = ("parameters", "returns", "constraints", "products")


@dataclass(frozen=True, slots=True)
class ApiEntry(Result, schema=SCHEMA, also=("call", "not_found", "online")):
    """One name below torch_npu ("npu_rms_norm", "optim.NpuFusedAdamW") with its documentation.

    `package`: the wheel or folder, `version`: its version; both "" without one. `where`: file:line of the
    documentation, `superseded`: those of earlier registrations. `signature` is set for Python classes and functions,
    `schemas` for ops. `kit` and `notes` are the kit's own.
    """

    name: str
    package: str
    version: str
    where: str
    superseded: tuple[str, ...]
    signature: str
    schemas: tuple[ApiSchema, ...]
    sections: tuple[DocSection, ...]
    kit: KitOp | None
    notes: tuple[Note, ...]

    @property
    def call(self) -> str:
        """The expression that calls it."""
        return f"torch_npu.{self.name}"

    @property
    def online(self) -> str:
        """The address of its online document."""
        return online_page(self.name)

    def section(self, kind: str) -> str:
        """The text of a section (a key of sections.HEADINGS), "" without one."""
        return next((section.text for section in self.sections if section.kind == kind), "")

    @property
    def not_found(self) -> tuple[str, ...]:
        """Missing parts: "wheel", "schema", "documentation", or kinds of sections."""
        if not self.package:
            return ("wheel",)
        missing = () if self.schemas or self.signature else ("schema",)
        if not self.sections:
            return (*missing, "documentation")
        return (*missing, *(kind for kind in _WANTED if not self.section(kind)))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        sections = {section.kind: section.text for section in self.sections}
        return Result.to_dict(self) | {"sections": sections, "online_folder": online_folder(self.name)}
