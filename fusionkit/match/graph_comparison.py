"""The result of comparing two captures of one model: differences by graph, op, device, dtype and site."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from fusionkit.encoding import Result
from fusionkit.match.rewrites import Rewrite

SCHEMA = "fusionkit.compare/1"
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Side:
    """The identity of one side of a comparison."""

    subject: str
    target: str
    dtype: str
    size: str
    seed: int
    window: str
    decompositions: str
    torch: str
    nodes: int


@dataclass(frozen=True, slots=True)
class GraphPair:
    """The n-th graph of one kind on each side.

    `a` and `b`: numbers of nodes, None if a side has no such graph. `difference`: the first node that differs, for
    graphs that call the same ops in the same order; "" for others.
    """

    kind: str
    number: int
    a: int | None
    b: int | None
    same: bool
    difference: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of nodes with an op, device or dtype on each side."""

    name: str
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class SitePair:
    """One site on both sides; `a`, `b`: hit, miss, already_fused, skipped, or absent if no site was counted there."""

    pattern: str
    module: str
    source: str
    a: str
    b: str
    note: str


@dataclass(frozen=True, slots=True)
class GraphComparison(Result, schema=SCHEMA, also=("same",)):
    """Two captures of one model. `ops`, `devices` and `dtypes` have the differences only, `sites` every site."""

    a: Side
    b: Side
    graphs: tuple[GraphPair, ...]
    ops: tuple[Tally, ...]
    devices: tuple[Tally, ...]
    dtypes: tuple[Tally, ...]
    sites: tuple[SitePair, ...]
    rewrites: tuple[Rewrite, ...]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the graphs are equal node by node, names and sources aside."""
        return all(pair.same for pair in self.graphs)

    @property
    def differing_sites(self) -> tuple[SitePair, ...]:
        """The sites whose states differ."""
        return tuple(site for site in self.sites if site.a != site.b)

    def op_rows(self) -> list[dict[str, Any]]:
        """Rows of a table: op, a, b, for every op whose number differs."""
        return [{"op": tally.name, "a": tally.a, "b": tally.b} for tally in self.ops]

    def site_rows(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Rows of a table: pattern, module, source, a, b, note, for sites that differ, or for all."""
        return [asdict(site) for site in (self.sites if everything else self.differing_sites)]

    def sum_line(self) -> str:
        """One line on the sites: their number for each pair of states."""
        pairs = Counter((site.a, site.b) for site in self.sites)
        counts = [f"{count} {_states_text(*pair)}" for pair, count in pairs.items()]
        return f"sites: {'; '.join(counts)}" if counts else "no site of the patterns on either side"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return Result.to_dict(self) | {
            "ops": self.op_rows(),
            "devices": [{"device": tally.name, "a": tally.a, "b": tally.b} for tally in self.devices],
            "dtypes": [{"dtype": tally.name, "a": tally.a, "b": tally.b} for tally in self.dtypes],
            "sites": self.site_rows(everything=True),
        }


def _states_text(a: str, b: str) -> str:
    words = {"miss": "missed", ABSENT: "not there", "already_fused": "already fused"}
    left, right = words.get(a, a), words.get(b, b)
    return f"{left} in both" if a == b else f"{left} in A, {right} in B"
