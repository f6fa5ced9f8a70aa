"""Executed notebooks as pages that are complete without network and without JavaScript.

nbconvert's `basic` template makes the body, and `clean_html` cleans every part of it. The page around it is the kit's:
inline CSS, and a Content-Security-Policy with which a browser neither runs nor fetches anything.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from markupsafe import Markup

from fusionkit.evidence.page_cells import page_cells
from fusionkit.templates import render, render_page

_STOPPING = ("FAIL", "BROKEN")
_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+?)\s*#*\s*$", re.MULTILINE)


def notebook_html(nb: Mapping[str, Any], *, fallback_title: str = "Notebook") -> str:
    """The whole page of an executed notebook (nbformat 4); its title is the notebook's first heading.

    The verdict with its gates, or the error, is below the first text; parameters are one list, longer code is folded.
    Widget views and JavaScript outputs are left out, since a notebook has a static table or picture beside each.
    """
    from nbconvert.exporters import HTMLExporter  # the extra `notebooks`, as is nh3
    from nbformat import from_dict

    from fusionkit.evidence.clean_html import clean_html

    new_exporter, as_node = cast(Any, HTMLExporter), cast(Any, from_dict)  # untyped
    exporter = new_exporter(
        template_name="basic",
        template_file=str(Path(__file__).with_name("templates") / "folded_code.html.j2"),
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
    content = render("evidence/templates/cells.html", "notebook", Markup(body))
    return page(_title(nb) or fallback_title, content)


def page(title: str, body: str) -> str:
    """A page around `body`, which is HTML."""
    return render_page("evidence/templates/page.html", title=title, body=Markup(body))


def index_html(title: str, rows: Sequence[Mapping[str, str | None]], links: Sequence[str]) -> str:
    """The page of a run. A row has `name`, `verdict`, `reason` and `page`, a link or None.

    `links` are further files of the run folder.
    """
    stopped = next((row["name"] for row in rows if row["verdict"] in _STOPPING), None)
    counts = Counter(row["verdict"] or "did not run" for row in rows)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    summary = (
        f"{len(rows)} notebook{'' if len(rows) == 1 else 's'}: {verdicts}" if rows else "no notebook yet"
    )
    template = "evidence/templates/index.html"
    return render_page(template, title=title, summary=summary, rows=rows, stopped=stopped, links=links)


def _title(nb: Mapping[str, Any]) -> str | None:
    for cell in nb["cells"]:
        heading = _HEADING.search("".join(cell["source"])) if cell["cell_type"] == "markdown" else None
        if heading:
            return re.sub(r"[`*_]", "", heading["title"])
    return None
