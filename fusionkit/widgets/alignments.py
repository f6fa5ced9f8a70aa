"""Missed sites as static HTML: pattern and graph side by side, the causes, the drawing. No script, no network."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.rows import AlignedRow
from fusionkit.widgets.call_fields import call_html, differing_fields
from fusionkit.widgets.cause_tables import EditMarkup, cause_cards
from fusionkit.widgets.drawing import DIFFERS, graph_svg
from fusionkit.widgets.listings import diff_block
from fusionkit.widgets.subgraphs import site_nodes
from fusionkit.widgets.tables import HEADING, NOTHING_TO_SHOW, breakable, nothing

Explained = Mapping[str, Sequence[SiteExplanation]]

_TABLE = (
    "border-collapse:collapse;table-layout:fixed;width:100%;font-size:13px;line-height:1.4;margin:0.5em 0"
)
_CELL = "border:1px solid #8c959f;padding:3px 8px;text-align:left;vertical-align:top;white-space:normal"
_CODE = f"{_CELL};overflow-wrap:anywhere;font-family:ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace;font-size:12px"
_STATE = f"{_CELL};font-weight:bold"
_HEAD = f"{_CELL};background:#8c959f33;font-weight:bold;overflow-wrap:anywhere"
_GROUP = "border:1px solid #8c959f;border-radius:4px;padding:6px 10px;margin:0.8em 0"
_SUMMARY = "font-weight:bold;cursor:pointer;font-size:14px;overflow-wrap:anywhere"
_NOTE = "font-size:13px;margin:0.4em 0;overflow-wrap:anywhere"
# Rows and drawing beside one another where there is room, else below.
_BESIDE = "display:flex;flex-wrap:wrap;gap:0 1.5em;align-items:flex-start"
_ROWS, _DRAWN = "flex:1 1 36em;min-width:0", "flex:0 1 auto;min-width:0;max-width:100%"
_SMALL = "font-size:11px;opacity:0.8"
_SIGNS = {"same": "=", "differs": DIFFERS, "pattern only": "\N{MINUS SIGN}", "graph only": "+"}
_TINTS = {"differs": "#d4a72c22", "pattern only": "#cf222e22", "graph only": "#0969da22"}
_FIELDS = {"argument_order": "operand order", "extra_user": "users", "shared_node": "operand"}
_SHOWN_SITES = 8
_NOT_NEAR = (
    "Nothing at this site comes near: most ops of every variant are absent. What lies nearest is shown with what stands"
    " in their place; no edit would mend this pattern."
)


def alignments_html(explained: Explained, caption: str | None = None, *, empty: str = NOTHING_TO_SHOW) -> str:
    """Every missed site: one block per pattern and set of causes, the sites that share it listed in it.

    `explained`: pattern -> its missed sites. Blocks fold, and are open at first, so that all can be read and
    printed without JavaScript. Without sites, the caption and `empty`.
    """
    blocks = [_block(pattern, group) for pattern, sites in explained.items() for group in alike(sites)]
    if not blocks:
        return nothing(empty, caption)
    title = f'<p style="{HEADING}">{html.escape(caption)}</p>' if caption else ""
    return title + "".join(blocks)


def alike(sites: Sequence[SiteExplanation]) -> list[list[SiteExplanation]]:
    """Sites missed by the same variant for the same causes, the numbers in node names aside."""
    groups: dict[object, list[SiteExplanation]] = {}
    for site in sites:
        causes = tuple(
            (c.type, c.pattern_node, _uncounted(c.expected), _uncounted(c.actual)) for c in site.causes
        )
        groups.setdefault((site.pattern, causes), []).append(site)
    return list(groups.values())


def site_html(pattern: str, site: SiteExplanation, edit: EditMarkup = diff_block) -> str:
    """One missed site: the aligned rows, the causes with fix and edit, the drawing."""
    where = site.module or site.anchor or "no place"
    told = cause_cards(site.causes, edit) + _matcher(site)
    if not site.rows:
        return (
            nothing("nothing of the pattern stands at this site, so there is nothing to lay side by side")
            + told
        )
    drawn = graph_svg(
        site_nodes(site),
        f"{pattern} at {where}",
        empty="the graph's nodes are not at hand, so nothing is drawn",
    )
    far = "" if site.near else f'<p style="{_NOTE}">{_NOT_NEAR}</p>'
    return (
        f'{far}<div style="{_BESIDE}"><div style="{_ROWS}">{rows_html(site)}</div>'
        f'<div style="{_DRAWN}">{drawn}</div></div>{told}'
    )


def rows_html(site: SiteExplanation) -> str:
    """Pattern and graph row by row; each row says in sign and word whether it is the same, and what differs."""
    names = {row.pattern_node: row.graph_node or row.graph_call for row in site.rows if row.pattern_node}
    body = "".join(_row(row, site, names) for row in site.rows)
    heads = (("8.5em", "row"), ("", f"pattern {site.pattern}"), ("", f"graph at {site.anchor or 'no node'}"))
    head = "".join(
        f'<th scope="col" style="{_HEAD}{f";width:{width}" if width else ""}">{breakable(text)}</th>'
        for width, text in heads
    )
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'


def _uncounted(text: str) -> str:
    return re.sub(r"\b(arg|primals_)\d+", r"\1", re.sub(r"(?<=[A-Za-z0-9])_\d+\b", "", text))


def _block(pattern: str, group: Sequence[SiteExplanation]) -> str:
    first = group[0]
    count = f"{len(group)} site{'s' if len(group) > 1 else ''}"
    causes = ", ".join(dict.fromkeys(cause.type for cause in first.causes)) or "no cause found"
    title = f"{pattern}: {count} missed by {first.pattern or 'any variant'}: {causes}"
    return (
        f'<details open style="{_GROUP}"><summary style="{_SUMMARY}">{breakable(title)}</summary>'
        f"{_sites(group)}{site_html(pattern, first)}</details>"
    )


def _sites(group: Sequence[SiteExplanation]) -> str:
    told = [breakable(place_of(site)) for site in group]
    first = f"shown here: {told[0]}"
    others = told[1:]
    if not others:
        return f'<p style="{_NOTE}">{first}</p>'
    shown = "<br>".join(others[:_SHOWN_SITES])
    more = others[_SHOWN_SITES:]
    folded = (
        f'<details style="{_NOTE}"><summary>and {len(more)} more</summary>{"<br>".join(more)}</details>'
        if more
        else ""
    )
    return f'<p style="{_NOTE}">{first}<br>for the same causes also:<br>{shown}</p>{folded}'


def place_of(site: SiteExplanation) -> str:
    """`module (anchor, file:line)`, as far as they are known."""
    inside = ", ".join(part for part in (site.anchor, site.source) if part)
    return f"{site.module or 'the model itself'} ({inside})" if inside else site.module or "no place"


def _row(row: AlignedRow, site: SiteExplanation, names: Mapping[str, str]) -> str:
    numbered = [(n, cause) for n, cause in enumerate(site.causes, start=1) if _sits_in(cause, row)]
    marked, other = differing_fields(row, [cause for _, cause in numbered], names)
    tint = _TINTS.get(row.state, "transparent")
    numbers = ", ".join(f"cause {number}" for number, _ in numbered)
    state = f"{_SIGNS.get(row.state, '')} {_state(row, bool(marked or other))}"
    return (
        f'<tr style="background:{tint}"><td style="{_STATE}">{html.escape(state)}'
        + (f'<br><span style="{_SMALL}">{numbers}</span>' if numbers else "")
        + f"</td>{_call(row.pattern_node, row.pattern_call, row.pattern_source, marked)}"
        f"{_call(row.graph_node, row.graph_call, row.graph_source, other)}</tr>\n"
    )


def _sits_in(cause: Cause, row: AlignedRow) -> bool:
    """The cause of a pattern node sits in that node's row; a node of the graph alone has its own row."""
    if row.pattern_node:
        return cause.pattern_node == row.pattern_node
    return bool(row.graph_node) and cause.graph_node == row.graph_node


def _state(row: AlignedRow, marked: bool) -> str:
    """The state in words, with what differs; a node that one side lacks shows in the row of what uses it."""
    if row.state != "differs":
        return row.state
    field = _FIELDS.get(row.types[0] if row.types else "", row.field) or "op"
    if field == "op" and row.pattern_call.partition("(")[0] == row.graph_call.partition("(")[0]:
        return f"differs: {'operand' if marked else 'what follows'}"
    return f"differs: {field}" if field in ("op", *_FIELDS.values()) else f"differs: {field}="


def _call(node: str, call: str, source: str, marked: frozenset[int]) -> str:
    if not node and not call:
        return f'<td style="{_CODE}"><em style="{_SMALL}">nothing</em></td>'
    told = call_html(call, marked)
    if node and call != node and "(" in call:
        told = f"{breakable(node)} = {told}"
    elif node:
        told = f"{breakable(node)}"
    at = f'<br><span style="{_SMALL}">{breakable(source.rpartition("/")[2])}</span>' if source else ""
    return f'<td style="{_CODE}">{told}{at}</td>'


def _matcher(site: SiteExplanation) -> str:
    if not site.said:
        return ""
    said = html.escape(site.said[:600] + ("\N{HORIZONTAL ELLIPSIS}" if len(site.said) > 600 else ""))
    return (
        f'<details style="{_NOTE}"><summary>what torch\'s own matcher says (it stopped at: '
        f'{html.escape(site.stage or "unknown")})</summary><pre style="white-space:pre-wrap;overflow-wrap:anywhere;'
        f'font-size:12px">{said}</pre></details>'
    )
