"""The aligner: one missed site at a time, pattern and graph side by side, chosen by drop-down or stepped through."""

from __future__ import annotations

from typing import Any

from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.templates import breakable, render
from fusionkit.widgets.alignments import TEMPLATE, Explained, site_html
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
    """The edit in a field that can be selected, with a button that copies it."""
    rows = edit.count("\n") + 1 + sum(len(line) // 90 for line in edit.splitlines())
    return render(TEMPLATE, "copyable", edit, rows)


class _Aligner:
    """The controls and the shown site; `place` among all misses is what everything follows."""

    def __init__(self, ipywidgets: Any, misses: list[tuple[str, SiteExplanation]]) -> None:
        self._misses = misses
        self._moving = False
        wide = ipywidgets.Layout(width="auto", min_width="0", flex="1 1 20em")
        names = list(dict.fromkeys(pattern for pattern, _ in misses))
        self._patterns = ipywidgets.Dropdown(options=names, description="pattern")
        self._sites = ipywidgets.Dropdown(options=self._options(names[0]), description="site", layout=wide)
        self._previous = ipywidgets.Button(description="previous miss", icon="arrow-left")
        self._next = ipywidgets.Button(description="next miss", icon="arrow-right")
        self._position = ipywidgets.HTML()
        self._shown = ipywidgets.HTML()
        self._patterns.observe(self._on_pattern, names="value")
        self._sites.observe(self._on_site, names="value")
        self._previous.on_click(lambda _: self._go(self._place - 1))
        self._next.on_click(lambda _: self._go(self._place + 1))
        row = ipywidgets.Layout(flex_flow="row wrap", width="100%")
        self.box = ipywidgets.VBox(
            [
                ipywidgets.HBox([self._patterns, self._sites], layout=row),
                ipywidgets.HBox([self._previous, self._next, self._position], layout=row),
                self._shown,
            ]
        )
        self._go(0)

    def _options(self, pattern: str) -> list[tuple[str, int]]:
        """Label -> place among all misses, for one pattern's sites."""
        own = [(place, site) for place, (name, site) in enumerate(self._misses) if name == pattern]
        return [(f"{number}: {_label(site)}", place) for number, (place, site) in enumerate(own, start=1)]

    def _on_pattern(self, change: Any) -> None:
        if not self._moving:
            self._go(self._options(change["new"])[0][1])

    def _on_site(self, change: Any) -> None:
        if not self._moving and change["new"] is not None:
            self._go(change["new"])

    def _go(self, place: int) -> None:
        """Show one miss, and let every control say so."""
        self._place = place
        pattern, site = self._misses[place]
        self._moving = True
        self._patterns.value = pattern
        self._sites.options = self._options(pattern)
        self._sites.value = place
        self._moving = False
        self._previous.disabled = place == 0
        self._next.disabled = place == len(self._misses) - 1
        at = f", {breakable(site.source)}" if site.source else ""
        self._position.value = f"miss {place + 1} of {len(self._misses)}{at}"
        self._shown.value = site_html(pattern, site, copyable)


def _label(site: SiteExplanation) -> str:
    where = site.module or "the model itself"
    return f"{where} ({site.anchor})" if site.anchor else where
