"""What the replacing of a site ends in: a new text of its file, or the reason why there is none."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fusionkit.errors import FusionKitError

if TYPE_CHECKING:
    from fusionkit.identify.replacing.patch import Patch


@dataclass(frozen=True, slots=True)
class Replacement:
    """A file's text in which one site has a fused branch, the original standing as its else branch.

    `condition`: what the fused branch asks, as source. `notes`: what to check before it is used. `patch`: the unified
    diff, with a/ and b/ paths, in the bytes that `git apply` and `patch -p1` take.
    """

    op: str
    file: str
    symbol: str
    condition: str
    notes: tuple[str, ...]
    patch: Patch

    @property
    def new_text(self) -> str:
        """The whole rewritten file, its line ends as line feeds."""
        return self.patch.new_text

    @property
    def diff(self) -> str:
        """The patch as text; written in `patch.encoding` it is `patch.data`."""
        return self.patch.diff

    def to_dict(self) -> dict[str, Any]:
        """The replacement without the whole file's text."""
        return {
            "op": self.op, "file": self.file, "symbol": self.symbol, "condition": self.condition,
            "notes": list(self.notes), "diff": self.diff, "encoding": self.patch.encoding,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """Why no replacement is written, in one line."""

    reason: str

    def to_dict(self) -> dict[str, str]:
        """The reason under its name."""
        return {"refused": self.reason}


class Unfit(FusionKitError):  # noqa: N818 - says what the code is, and never leaves the package
    """A place whose code is not written in a way that can be replaced safely."""


@dataclass(eq=False)
class Change:
    """What the fused branch does otherwise than the original.

    `texts`: expression or statement of the original -> what stands there instead. `parts`: every node that takes part
    in the math, so that the branch holds them all; what they leave unused is left out. `before`: lines put in front of a
    statement. `at_start`: names that in `texts` and `before` mean what they hold before the branch. `nothing`: names
    that the fused branch has no value for, which become None. `conditions`: what it asks beyond the switch.
    """

    texts: dict[ast.AST, str]
    parts: tuple[ast.AST, ...] = ()
    before: dict[ast.AST, list[str]] = field(default_factory=dict)
    at_start: frozenset[str] = frozenset()
    nothing: frozenset[str] = frozenset()
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def with_conditions(self, told: Mapping[str, None]) -> tuple[str, ...]:
        """The conditions joined behind those told already, each once."""
        return tuple(dict.fromkeys((*told, *self.conditions)))
