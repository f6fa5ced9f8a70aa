"""The proof of a candidate in words and figures, from its JSON form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.identify.reporting.fences import one_line, span, table
from fusionkit.identify.reporting.phrases import in_words
from fusionkit.identify.reporting.words import Lang, say

_MOST = 6  # runs in the table; the others are counted


def proof_section(proof: Mapping[str, Any] | None, lang: Lang) -> list[str]:
    """The lines on one proof; None where none was tried."""
    if proof is None:
        return [say(lang, "not_proved")]
    lines = [f"**{proof['verdict']}**: {one_line(in_words(lang, str(proof.get('reason', ''))))}"]
    if proof.get("forced"):
        lines.append(f"({say(lang, 'forced')}: {', '.join(span(item) for item in proof['forced'])})")
    runs = _worst_first(proof.get("runs", ()))
    if not runs:
        return lines
    head = [say(lang, name) for name in ("run", "dtypes", "verdict", "figures")]
    lines += ["", table(head, [_row(run, lang) for run in runs[:_MOST]])]
    if rest := runs[_MOST:]:
        counts = Counter(run["verdict"] for run in rest)
        told = ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items()))
        lines += ["", say(lang, "other_runs", count=len(rest), told=told)]
    return lines


def _worst_first(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Failures first, then the undecided; else in the order in which they ran."""
    order = ("FAIL", "INCONCLUSIVE", "PASS")
    return sorted(runs, key=lambda run: order.index(run["verdict"]))


def _row(run: Mapping[str, Any], lang: Lang) -> list[str]:
    shapes = ", ".join(f"{name} {tuple(shape)}" for name, shape in run.get("shapes", {}).items())
    told = [run["dtype"], "autocast" if run.get("autocast") else "", in_words(lang, str(run.get("case", "")))]
    told += [say(lang, "training" if run.get("training") else "inference"), shapes]
    before, after = (", ".join(run.get(name, ())) or "-" for name in ("output_dtypes", "replaced_dtypes"))
    passed = run["verdict"] == "PASS"
    figures = _figures(run.get("figures"), lang) if passed else in_words(lang, str(run.get("reason", "")))
    return ["; ".join(filter(None, told)), f"{before} / {after}", run["verdict"], figures]


def _figures(figures: Mapping[str, Any] | None, lang: Lang) -> str:
    if not figures:
        return "-"
    if figures.get("bit_equal"):
        return say(lang, "bit_equal")
    ulps, limit = figures.get("max_ulps"), figures.get("max_limit_ulps")
    told = []
    if ulps is not None and limit is not None:
        told.append(
            say(lang, "ulps", ulps=ulps, limit=limit, original=figures.get("original_max_ulps") or 0.0)
        )
    if figures.get("max_abs") is not None:
        told.append(say(lang, "max_abs", value=figures["max_abs"]))
    return "; ".join(told) or "-"
