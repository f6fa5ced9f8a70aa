"""Missed sites as static HTML: pattern and graph side by side, the causes, the drawing. No script, no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.rows import AlignedRow
from fusionkit.templates import render
from fusionkit.visible import with_readings
from fusionkit.widgets.call_fields import call_html, differing_fields
from fusionkit.widgets.drawing import DIFFERS, graph_svg, site_nodes
from fusionkit.widgets.listings import diff_block
from fusionkit.widgets.tables import NOTHING_TO_SHOW, heading, nothing

Explained = Mapping[str, Sequence[SiteExplanation]]
EditMarkup = Callable[[str], str]
Side = tuple[str, Markup, str]

TEMPLATE = "widgets/templates/alignments.html"
_SIGNS = {"same": "=", "differs": DIFFERS, "pattern only": "\N{MINUS SIGN}", "graph only": "+"}
_FIELDS = {"argument_order": "operand order", "extra_user": "users", "shared_node": "operand"}


def alignments_html(explained: Explained, caption: str | None = None, *, empty: str = NOTHING_TO_SHOW) -> str:
    """Every missed site: one block per pattern and set of causes, the sites that share it listed in it.

    `explained`: pattern -> its missed sites. Blocks fold, and are open at first, so that all can be read and
    printed without JavaScript. Without sites, the caption and `empty`.
    """
    blocks = [_block(pattern, group) for pattern, sites in explained.items() for group in alike(sites)]
    if not blocks:
        return nothing(empty, caption)
    return (heading(caption) if caption else "") + "".join(blocks)


def alike(sites: Sequence[SiteExplanation]) -> list[list[SiteExplanation]]:
    """Sites missed by the same variant for the same causes, the numbers in node names aside."""
    groups: dict[object, list[SiteExplanation]] = {}
    for site in sites:
        causes = tuple(
            (c.type, c.pattern_node, _without_numbers(c.expected), _without_numbers(c.actual))
            for c in site.causes
        )
        groups.setdefault((site.pattern, causes), []).append(site)
    return list(groups.values())


def site_html(pattern: str, site: SiteExplanation, edit: EditMarkup = diff_block) -> str:
    """One missed site: the aligned rows, the causes with fix and edit, the drawing."""
    drawing = graph_svg(
        site_nodes(site),
        f"{pattern} at {site.module or site.anchor or 'no place'}",
        empty="no drawing: the graph's nodes are not in memory",
    )
    parts = rows_html(site), drawing, cause_cards(site.causes, edit)
    return render(TEMPLATE, "site", site, *map(Markup, parts))


def cause_cards(causes: Sequence[Cause], edit: EditMarkup = diff_block) -> str:
    """One table per cause, numbered as in the rows; `edit` renders the lines to remove and to add as HTML."""
    read = [
        replace(cause, expected=with_readings(cause.expected), actual=with_readings(cause.actual))
        for cause in causes
    ]
    return render(TEMPLATE, "cards", read, lambda lines: Markup(edit(lines)))


def rows_html(site: SiteExplanation) -> str:
    """Pattern and graph row by row; each row has its state as sign and word, and the field that differs."""
    names = {row.pattern_node: row.graph_node or row.graph_call for row in site.rows if row.pattern_node}
    rows = [_row(row, site, names) for row in site.rows]
    return render(TEMPLATE, "rows", site.pattern, site.anchor or "no node", rows)


def _without_numbers(text: str) -> str:
    return re.sub(r"\b(arg|primals_)\d+", r"\1", re.sub(r"(?<=[A-Za-z0-9])_\d+\b", "", text))


def _block(pattern: str, group: Sequence[SiteExplanation]) -> str:
    first = group[0]
    count = f"{len(group)} site{'s' if len(group) > 1 else ''}"
    causes = ", ".join(dict.fromkeys(cause.type for cause in first.causes)) or "no cause found"
    title = f"{pattern}: {count} missed by {first.pattern or 'any variant'}: {causes}"
    sites = [site_label(site, site.anchor, site.source) for site in group]
    return render(TEMPLATE, "block", title, sites, Markup(site_html(pattern, first)))


def site_label(site: SiteExplanation, *details: str) -> str:
    """The module of a site, with those of the `details` that are not empty in parentheses."""
    known = ", ".join(detail for detail in details if detail)
    if not known:
        return site.module or "no place"
    return f"{site.module or 'the model itself'} ({known})"


def _row(
    row: AlignedRow, site: SiteExplanation, names: Mapping[str, str]
) -> tuple[AlignedRow, str, str, list[Side]]:
    """The row, its state, the numbers of its causes, and its two sides."""
    numbered = [(n, cause) for n, cause in enumerate(site.causes, start=1) if _belongs(cause, row)]
    in_pattern, in_graph = differing_fields(row, [cause for _, cause in numbered], names)
    numbers = ", ".join(f"cause {number}" for number, _ in numbered)
    state = f"{_SIGNS.get(row.state, '')} {_state(row, bool(in_pattern or in_graph))}"
    pattern = _side(row.pattern_node, row.pattern_call, row.pattern_source, in_pattern)
    return row, state, numbers, [pattern, _side(row.graph_node, row.graph_call, row.graph_source, in_graph)]


def _belongs(cause: Cause, row: AlignedRow) -> bool:
    """The cause of a pattern node belongs to that node's row; a node of the graph alone has its own row."""
    if row.pattern_node:
        return cause.pattern_node == row.pattern_node
    return bool(row.graph_node) and cause.graph_node == row.graph_node


def _state(row: AlignedRow, marked: bool) -> str:
    """The state in words, with the field that differs; a node that one side lacks shows in the row of its user."""
    if row.state != "differs":
        return row.state
    field = _FIELDS.get(row.types[0] if row.types else "", row.field) or "op"
    if field == "op" and row.pattern_call.partition("(")[0] == row.graph_call.partition("(")[0]:
        return f"differs: {'operand' if marked else 'following op'}"
    return f"differs: {field}" if field in ("op", *_FIELDS.values()) else f"differs: {field}="


def _side(node: str, call: str, source: str, marked: frozenset[int]) -> Side:
    """The node's name, its call (or the text of a side without a node), and file and line."""
    markup = call_html(call, marked) if not node or (call != node and "(" in call) else Markup()
    return node, markup, source.rpartition("/")[2]
