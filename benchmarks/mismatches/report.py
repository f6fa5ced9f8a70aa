"""Tables of the benchmark, and whether its figures are good enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mismatches.running import Row


@dataclass(frozen=True, slots=True)
class Limits:
    """The shares that are good enough: types, nodes, each type, both of two changes, repairs."""

    type: float = 0.97
    node: float = 0.97
    one_type: float = 0.90
    both: float = 0.90
    repair: float = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """So many right of so many."""

    right: int
    of: int

    @property
    def value(self) -> float:
        return self.right / self.of if self.of else 1.0

    def __str__(self) -> str:
        return f"{self.value:6.1%}" if self.of else "     -"


def singles(rows: Sequence[Row]) -> list[Row]:
    """The rows with one change."""
    return [row for row in rows if len(row.types) == 1 and row.operator != "double"]


def share(values: Sequence[bool | None]) -> Share:
    """The share of true among those that are known."""
    known = [value for value in values if value is not None]
    return Share(sum(known), len(known))


def table(rows: Sequence[Row]) -> str:
    """One line per cause type, then all of them, the double changes, and the unchanged variants."""
    by_type: dict[str, list[Row]] = defaultdict(list)
    for row in singles(rows):
        by_type[row.types[0]].append(row)
    head = f"{'cause type':18} {'cases':>5} {'type':>6} {'node':>6} {'torch type':>10} {'torch node':>10} {'repaired':>8}"
    lines = [head, *(_line(kind, found) for kind, found in sorted(by_type.items()))]
    lines.append(_line("all", singles(rows)))
    doubles = [row for row in rows if row.operator == "double"]
    lines.append(_line("two at once", doubles))
    unchanged = [row for row in rows if row.operator == "unchanged"]
    lines.append(
        f"{'unchanged':18} {len(unchanged):5}; diagnoses where the pattern hits: {sum(row.false for row in rows)};"
        f" causes beyond the label: {sum(row.extra for row in singles(rows))}"
    )
    return "\n".join(lines)


def _line(name: str, rows: Sequence[Row]) -> str:
    return (
        f"{name:18} {len(rows):5} {share([r.type_right for r in rows])} {share([r.node_right for r in rows])}"
        f" {share([r.baseline_type for r in rows])!s:>10} {share([r.baseline_node for r in rows])!s:>10}"
        f" {share([r.repaired for r in rows])!s:>8}"
    )


def shortfalls(rows: Sequence[Row], limits: Limits) -> list[str]:
    """What keeps the figures of one part from being good enough; empty when nothing does."""
    found = []
    one = singles(rows)
    for what, got, limit in (
        ("type", share([r.type_right for r in one]), limits.type),
        ("node", share([r.node_right for r in one]), limits.node),
    ):
        if got.value < limit:
            found.append(f"right {what} in {got.right} of {got.of} cases, wanted {limit:.0%}")
    for kind in sorted({row.types[0] for row in one}):
        got = share([row.type_right for row in one if row.types[0] == kind])
        if got.value < limits.one_type:
            found.append(f"{kind} in {got.right} of {got.of}, wanted {limits.one_type:.0%}")
    both = share([row.type_right for row in rows if row.operator == "double"])
    if both.value < limits.both:
        found.append(f"both of two changes named in {both.right} of {both.of}, wanted {limits.both:.0%}")
    repaired = share([row.repaired for row in rows])
    if repaired.value < limits.repair:
        found.append(f"repaired {repaired.right} of {repaired.of}, wanted {limits.repair:.0%}")
    stopped = sum(row.operator == "unchanged" and not row.type_right for row in rows)
    if stopped:
        found.append(f"explain stopped on {stopped} unchanged variants")
    if sum(row.false for row in rows):
        found.append(f"{sum(row.false for row in rows)} diagnoses where the pattern hits")
    return found


def wrong(rows: Sequence[Row]) -> str:
    """The cases that came out wrong: the file, what was expected, what was said."""
    blocks = []
    for row in rows:
        if row.type_right and row.node_right is not False and not row.false and row.repaired is not False:
            continue
        text = "\n".join(body.rstrip() for body in row.files.values())
        faults = [
            *(["TYPE"] if not row.type_right else []),
            *(["NODE"] if row.node_right is False else []),
            *([f"{row.false} FALSE"] if row.false else []),
            *([f"REPAIR {row.repair_told}"] if row.repaired is False else []),
        ]
        blocks.append(
            f"== {row.case} [{row.operator}] {', '.join(faults)}\n{text}\nexpected: {row.expected}\ngot:      {row.got[:700]}\n"
        )
    return "\n".join(blocks)
