"""What a repair did and why: hits, proofs, edits, the new file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.repairing.copies import CopiesLeft
from fusionkit.match.repairing.proof import Hit
from fusionkit.store import write_text

SCHEMA = "fusionkit.repair/1"


@dataclass(frozen=True, slots=True)
class RepairReport(Result, schema=SCHEMA):
    """`before` and `after`: hits with the old and the new file, by torch's matcher on the same graphs.

    `sites`: every hit of the new file. `missed`: explanations of the sites that it still misses. `edits`: variant ->
    its changes. `text`: the new file, None unless `offered`; `reason`: why it is offered or not. `copies`: casts and
    copies against the kit's own pattern at the same sites, None without one there.
    """

    pattern: str
    before: int
    after: int
    sites: tuple[Hit, ...]
    edits: dict[str, tuple[str, ...]]
    text: str | None
    offered: bool
    reason: str
    missed: tuple[SiteExplanation, ...] = ()
    copies: CopiesLeft | None = None

    def __bool__(self) -> bool:
        """Whether a repair is offered."""
        return self.offered

    def write(self, out: Path) -> Path:
        """Write the new file. Raises MisuseError when no repair is offered, or `out` exists."""
        if self.text is None:
            raise MisuseError(f"no repair of {self.pattern} is offered: {self.reason}")
        if out.exists():
            raise MisuseError(f"{out}: exists already and is never overwritten; give another --out")
        return write_text(out, self.text)
