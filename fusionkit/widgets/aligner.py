"""The aligner: one missed site at a time, pattern and graph side by side, chosen by drop-down or stepped through."""

from __future__ import annotations

from typing import Any

from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.templates import breakable, render
from fusionkit.widgets.alignments import TEMPLATE, Explained, site_html, site_label
from fusionkit.widgets.tables import NOTHING_TO_SHOW, nothing


def aligner(explained: Explained, *, empty: str = NOTHING_TO_SHOW) -> Any | None:
    """Build the aligner for pattern -> missed sites; show `alignments_html` beside it.

    Drop-downs choose pattern and site; the buttons step through the misses of all patterns. Returns an
    `ipywidgets.VBox`, or None where ipywidgets is not installed: the static page beside it remains. Without
    misses, `empty` is all that it shows.
    """
    try:
        import ipywidgets
    except ImportError:
        return None
    misses = [(pattern, site) for pattern, sites in explained.items() for site in sites]
    if not misses:
        return ipywidgets.VBox([ipywidgets.HTML(nothing(empty))])
    return _Aligner(ipywidgets, misses).box


def copyable(edit: str) -> str:
    """The edit in a text field with a button that copies it."""
    rows = edit.count("\n") + 1 + sum(len(line) // 90 for line in edit.splitlines())
    return render(TEMPLATE, "copyable", edit, rows)


class _Aligner:
    """The controls and the shown site, which follow the index of the current miss among all misses."""

    def __init__(self, ipywidgets: Any, misses: list[tuple[str, SiteExplanation]]) -> None:
        self._misses = misses
        self._updating = False
        wide = ipywidgets.Layout(width="auto", min_width="0", flex="1 1 20em")
        names = list(dict.fromkeys(pattern for pattern, _ in misses))
        self._patterns = ipywidgets.Dropdown(options=names, description="pattern")
        self._sites = ipywidgets.Dropdown(options=self._options(names[0]), description="site", layout=wide)
        self._previous = ipywidgets.Button(description="previous miss", icon="arrow-left")
        self._next = ipywidgets.Button(description="next miss", icon="arrow-right")
        self._position = ipywidgets.HTML()
        self._site = ipywidgets.HTML()
        self._patterns.observe(self._on_pattern, names="value")
        self._sites.observe(self._on_site, names="value")
        self._previous.on_click(lambda _: self._go(self._index - 1))
        self._next.on_click(lambda _: self._go(self._index + 1))
        row = ipywidgets.Layout(flex_flow="row wrap", width="100%")
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HBox([self._patterns, self._sites], layout=row),
                ipywidgets.HBox([self._previous, self._next, self._position], layout=row),
                self._site,
            ]
        )
        self._go(0)

    def _options(self, pattern: str) -> list[tuple[str, int]]:
        """Label -> index among all misses, for one pattern's sites."""
        own = [(index, site) for index, (name, site) in enumerate(self._misses) if name == pattern]
        return [
            (f"{number}: {site_label(site, site.anchor)}", index)
            for number, (index, site) in enumerate(own, start=1)
        ]

    def _on_pattern(self, change: Any) -> None:
        if not self._updating:
            self._go(self._options(change["new"])[0][1])

    def _on_site(self, change: Any) -> None:
        if not self._updating and change["new"] is not None:
            self._go(change["new"])

    def _go(self, index: int) -> None:
        """Show one miss and set the controls accordingly."""
        self._index = index
        pattern, site = self._misses[index]
        self._updating = True
        self._patterns.value = pattern
        self._sites.options = self._options(pattern)
        self._sites.value = index
        self._updating = False
        self._previous.disabled = index == 0
        self._next.disabled = index == len(self._misses) - 1
        source = f", {breakable(site.source)}" if site.source else ""
        self._position.value = f"miss {index + 1} of {len(self._misses)}{source}"
        self._site.value = site_html(pattern, site, copyable)
