"""The sites of each primitive in a model, counted in eager mode without looking at a graph.

Hits in the graph are compared with these counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionkit.counters import SiteCounter
from fusionkit.encoding import Result
from fusionkit.fusions import FUSIONS
from fusionkit.subjects.build import Subject
from fusionkit.subjects.recorder import record
from fusionkit.subjects.source_paths import short_path
from fusionkit.subjects.table import SUBJECTS


@dataclass(frozen=True, slots=True)
class ExpectedSite(Result):
    """One place where the eager model computes `primitive`.

    `module`: dotted path, as in named_modules, of the innermost running module; "" is the model itself. `source`:
    `file:line` of the math: first line of a forward or function, or the line of the call if the math is a builtin or
    in the caller. `caller`: `file:line` of the innermost calling frame outside torch. `ordinal`: index of the site
    among those of its primitive, in call order, from 0.
    """

    primitive: str
    module: str
    source: str
    caller: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class ExpectedCount(Result, also=("expected", "counted", "contradiction")):
    """The expected number of sites of one primitive, and its sources.

    `sites`: the counted sites, None if no counter applies. `declared`: the author's number, None without one.
    `complete`: the counters cover every site of this model (a row of the table); otherwise the count is a lower
    bound.
    """

    primitive: str
    sites: tuple[ExpectedSite, ...] | None
    declared: int | None
    complete: bool

    @property
    def counted(self) -> int | None:
        """Number of counted sites."""
        return None if self.sites is None else len(self.sites)

    @property
    def expected(self) -> int | None:
        """The number to compare hits with: a complete count, else the author's, else the lower bound."""
        if self.complete or self.declared is None:
            return self.counted
        return self.declared

    @property
    def is_whole(self) -> bool:
        """Whether no site is left out: counters that cover the model, or its author, give the number."""
        return self.complete or self.declared is not None

    @property
    def contradiction(self) -> str | None:
        """The contradiction between count and declaration, or None."""
        counted, declared = self.counted, self.declared
        if counted is None or declared is None or counted == declared:
            return None
        if not self.complete and counted < declared:
            return None
        return f"{self.primitive}: expected_sites says {declared}, the eager run has {counted}"


def count_sites(
    subject: Subject, primitives: Sequence[str] | None = None
) -> dict[str, list[ExpectedSite] | None]:
    """Run `subject` once in eager mode and count its sites by module hooks and function wrappers.

    `primitives`: those to count; by default those of the subject's row, or all with a counter. The value is None if no
    counter applies: for a primitive that the row does not name or, for a model outside the table, one without any
    counted call. The model, its hooks and the libraries' functions are restored. Errors of the forward pass through.
    """
    names = tuple(primitives) if primitives is not None else default_primitives(subject)
    rows = counters_for(subject, names)
    sites_of: dict[str, list[ExpectedSite]] = {row.primitive: [] for row in rows}
    for occurrence in record(subject, rows) if rows else []:
        sites = sites_of[occurrence.primitive]
        source = f"{short_path(occurrence.code.co_filename)}:{occurrence.line}"
        sites.append(
            ExpectedSite(occurrence.primitive, occurrence.module, source, occurrence.caller, len(sites))
        )
    if subject.spec is None:
        return {name: sites_of.get(name) or None for name in names}
    return {name: sites_of.get(name) for name in names}


def expected_counts(subject: Subject, primitives: Sequence[str] | None = None) -> dict[str, ExpectedCount]:
    """`count_sites` together with the counts that the subject's author declared."""
    declared = dict(subject.expected_sites or {})
    counted = count_sites(subject, primitives)
    names = [
        *counted,
        *(() if primitives is not None else [name for name in declared if name not in counted]),
    ]
    return {
        name: ExpectedCount(
            name,
            None if (sites := counted.get(name)) is None else tuple(sites),
            declared.get(name),
            complete=subject.spec is not None and sites is not None,
        )
        for name in names
    }


def default_primitives(subject: Subject) -> tuple[str, ...]:
    """The primitives of the subject's row; for a model outside the table all with a counter."""
    return primitives() if subject.spec is None else subject.spec.primitives


def counters() -> tuple[SiteCounter, ...]:
    """Every counter: those of the fusions, then those of the subjects, each once."""
    of_fusions = [counter for row in FUSIONS for counter in row.counters]
    of_subjects = [counter for spec in SUBJECTS.values() for counter in spec.counters]
    return tuple(dict.fromkeys([*of_fusions, *of_subjects]))


def primitives() -> tuple[str, ...]:
    """The primitives that have a counter, in the order of the table of fusions."""
    counted = {counter.primitive for counter in counters()}
    return tuple(row.primitive for row in FUSIONS if row.primitive in counted)


def counters_for(subject: Subject, chosen: Sequence[str]) -> tuple[SiteCounter, ...]:
    """The counters for the primitives in `chosen` that are valid for `subject`."""
    if subject.spec is None:
        return tuple(counter for counter in counters() if counter.primitive in chosen and counter.anywhere)
    covered = set(chosen) & set(subject.spec.primitives)
    return tuple(counter for counter in counters() if counter.primitive in covered)
