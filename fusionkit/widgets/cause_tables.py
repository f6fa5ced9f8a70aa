"""Why a site was missed: one card per cause, with both sides of the difference, both source lines, fix and edit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from fusionkit.match.explanation.causes import Cause
from fusionkit.templates import render
from fusionkit.widgets.listings import diff_block

EditMarkup = Callable[[str], str]


def cause_cards(causes: Sequence[Cause], edit: EditMarkup = diff_block) -> str:
    """One table per cause, numbered as in the rows above; `edit` renders the lines to take out and to put in as HTML."""
    return render("widgets/templates/alignments.html", "cards", causes, lambda lines: Markup(edit(lines)))
