"""Executed notebooks as pages that show everything without network and without JavaScript.

nbconvert's `basic` template makes the body; every piece of it goes through `clean_html`, and the page around
it is ours: inline CSS, and a Content-Security-Policy that lets a browser neither run nor fetch anything.
"""

from __future__ import annotations

import html
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from fusionkit.evidence.clean_html import clean_html
from fusionkit.evidence.page_cells import badge, page_cells
from fusionkit.evidence.page_css import PAGE_CSS

_DID_NOT_RUN = "did not run"
_STOPPING = ("FAIL", "BROKEN")
_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*\s*$", re.MULTILINE)
# Code of more than three lines is folded: a click shows it, without a script.
_TEMPLATE = """\
{%- extends 'index.html.j2' -%}
{%- block input -%}
{%- set lines = cell.source.splitlines() | length -%}
{%- if lines > 3 -%}
<details class="code"><summary>code, {{ lines }} lines</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock -%}
"""


def notebook_html(nb: Mapping[str, Any], *, fallback_title: str = "Notebook") -> str:
    """The whole page of an executed notebook (nbformat 4); its title is the notebook's first heading.

    The verdict and its gates, or where the notebook broke, stand below the first text; parameters are one list,
    longer code is folded. Widget views and JavaScript outputs are left out: a notebook shows the same as a
    table or picture besides.
    """
    from nbconvert.exporters import HTMLExporter  # the extra `notebooks`
    from nbformat import from_dict

    make, as_node = cast(Any, HTMLExporter), cast(Any, from_dict)  # untyped
    exporter = make(
        template_name="basic",
        raw_template=_TEMPLATE,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        sanitize_html=True,
        exclude_anchor_links=True,
        filters={"clean_html": clean_html},
        log=logging.Logger("notebook_html", level=logging.CRITICAL),
    )
    metadata = {key: value for key, value in nb["metadata"].items() if key != "widgets"}
    body, _ = exporter.from_notebook_node(
        as_node({**nb, "metadata": metadata, "cells": page_cells(nb["cells"])})
    )
    up = '<nav><a href="index.html">all notebooks of this run</a></nav>'
    return page(_title(nb) or fallback_title, f'<main class="notebook">\n{up}\n{body}\n</main>')


def page(title: str, body: str) -> str:
    """A page around `body`, which must be HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{PAGE_CSS}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def index_html(title: str, rows: Sequence[Mapping[str, str | None]], links: Sequence[str]) -> str:
    """The page of a run. A row has `name`, `verdict`, `reason` and `page` (None where there is none).

    `links` are further files of the run folder.
    """
    stopped = next((row["name"] for row in rows if row["verdict"] in _STOPPING), None)
    lines = "\n".join(_index_row(row, stopped) for row in rows)
    files = ", ".join(f'<a href="{_url(link)}">{html.escape(link)}</a>' for link in links)
    return page(
        title,
        f'<main class="index">\n<h1>{html.escape(title)}</h1>\n<p class="summary">{_summary(rows)}</p>\n<table>\n'
        "<thead><tr><th>notebook</th><th>verdict</th><th>reason</th></tr></thead>\n"
        f"<tbody>\n{lines}\n</tbody>\n</table>\n<p>Files of this run: {files}</p>\n</main>",
    )


def _summary(rows: Sequence[Mapping[str, str | None]]) -> str:
    """How many notebooks came to which verdict."""
    counts = Counter(row["verdict"] or _DID_NOT_RUN for row in rows)
    told = ", ".join(f"{count} {html.escape(verdict)}" for verdict, count in counts.items())
    return f"{len(rows)} notebook{'' if len(rows) == 1 else 's'}: {told}" if rows else "no notebook yet"


def _index_row(row: Mapping[str, str | None], stopped: str | None) -> str:
    name, verdict = html.escape(row["name"] or ""), row["verdict"] or _DID_NOT_RUN
    link = f'<a href="{_url(row["page"])}">{name}</a>' if row["page"] else name
    reason = row["reason"] or (f"the run stopped at {stopped}" if stopped and not row["verdict"] else "")
    return f"<tr><td>{link}</td><td>{badge(verdict)}</td><td>{html.escape(reason)}</td></tr>"


def _url(path: str | None) -> str:
    return html.escape(quote(path or "", safe="/"))


def _title(nb: Mapping[str, Any]) -> str | None:
    for cell in nb["cells"]:
        heading = _HEADING.search("".join(cell["source"])) if cell["cell_type"] == "markdown" else None
        if heading:
            return re.sub(r"[`*_]", "", heading["title"])
    return None
