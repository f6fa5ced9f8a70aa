"""A call as text, taken apart, and which of its fields differ between a pattern's call and the graph's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.rows import AlignedRow

OP = -1  # stands for the op itself where a field is meant by its place among the arguments

_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d.]*e-\d+")  # has a hyphen inside, at which a browser would break it
_WORD = re.compile(r"[A-Za-z_]\w*")
# Marked by weight and line as well as by tint: colour alone tells nothing to some.
_MARKED = "background:#d4a72c66;color:inherit;font-weight:bold;text-decoration:underline;padding:0 1px"


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a call: its keyword ("" for a positional one) and its text."""

    keyword: str
    text: str

    @property
    def shown(self) -> str:
        """As it stands in the call."""
        return f"{self.keyword}={self.text}" if self.keyword else self.text


@dataclass(frozen=True, slots=True)
class CallText:
    """`aten.mean.dim(pow_1, [-1], True)`, taken apart; `fields` is None where the text is no call."""

    op: str
    fields: tuple[Field, ...] | None

    def field(self, keyword: str) -> int | None:
        """Place of the argument with that keyword."""
        return next((i for i, item in enumerate(self.fields or ()) if item.keyword == keyword), None)


def read_call(text: str) -> CallText:
    """Take a call apart at the commas outside brackets."""
    op, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")"):
        return CallText(text, None)
    parts, depth, start = [], 0, 0
    inside = rest[:-1]
    for place, sign in enumerate(inside):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(inside[start:place])
            start = place + 1
    parts.append(inside[start:])
    texts = [part.strip() for part in parts if part.strip()]
    return CallText(op, tuple(_field(part) for part in texts))


def call_html(text: str, marked: Collection[int] = ()) -> Markup:
    """The call as escaped HTML that may break after a comma or between the parts of a name; `marked` fields stand out."""
    call = read_call(text)
    op = _shown(call.op, OP in marked)
    if call.fields is None:
        return op
    inner = Markup(", ").join(_shown(field.shown, place in marked) for place, field in enumerate(call.fields))
    return Markup("{}(<wbr>{})").format(op, inner)


def differing_fields(
    row: AlignedRow, causes: Sequence[Cause], names: Mapping[str, str]
) -> tuple[frozenset[int], frozenset[int]]:
    """Which fields to mark in the pattern's call and in the graph's, by place; OP is the op.

    `causes`: those that sit in this row. `names`: pattern node -> graph node (or literal) of the site's rows.
    """
    if row.state != "differs":
        return frozenset(), frozenset()
    ours, theirs = read_call(row.pattern_call), read_call(row.graph_call)
    if ours.fields is None or theirs.fields is None or ours.op != theirs.op:
        whole = frozenset((OP,)) if any(cause.type != "extra_user" for cause in causes) else frozenset[int]()
        return whole, whole
    pairs = _pairs(ours, theirs, names)
    chosen = [pair for cause in causes for pair in _of_cause(cause, ours, theirs, pairs, names)]
    return (
        frozenset(mine for mine, _ in chosen if mine is not None),
        frozenset(other for _, other in chosen if other is not None),
    )


Pair = tuple[int | None, int | None]


def _pairs(ours: CallText, theirs: CallText, names: Mapping[str, str]) -> list[Pair]:
    """Arguments that differ once the pattern's nodes go by the names of the graph's; None where a side has none."""
    mine, other = ours.fields or (), theirs.fields or ()
    places = _by_name(mine), _by_name(other)
    keys = dict.fromkeys([*places[0], *places[1]])
    differing: list[Pair] = []
    for key in keys:
        a, b = places[0].get(key), places[1].get(key)
        same = a is not None and b is not None and _renamed(mine[a].text, names) == other[b].text
        if not same:
            differing.append((a, b))
    return differing


def _by_name(fields: Sequence[Field]) -> dict[str | int, int]:
    return {item.keyword or place: place for place, item in enumerate(fields)}


def _of_cause(
    cause: Cause, ours: CallText, theirs: CallText, pairs: Sequence[Pair], names: Mapping[str, str]
) -> list[Pair]:
    """The pairs that one cause is about."""
    if cause.type == "extra_user":
        return []
    mine, other = ours.fields or (), theirs.fields or ()
    wanted = _plain(cause.expected), _plain(cause.actual)
    exact: list[Pair] = [
        (a, b)
        for a, b in pairs
        if a is not None and b is not None and (_plain(mine[a].text), _plain(other[b].text)) == wanted
    ]
    if exact:
        return exact
    if cause.type == "kwargs_structure":
        lone = [(a, b) for a, b in pairs if a is None or b is None]
        words = {word for text in (cause.expected, cause.actual) for word in _WORD.findall(text)}
        named = [(a, b) for a, b in lone if _keyword(mine, a) in words or _keyword(other, b) in words]
        return named or lone
    literal: list[Pair] = [(a, b) for a, b in pairs if b is not None and _plain(other[b].text) == wanted[1]]
    return literal or [(a, b) for a, b in pairs if a is not None and _is_node(mine[a].text, names)]


def _keyword(fields: Sequence[Field], place: int | None) -> str:
    return "" if place is None else fields[place].keyword


def _is_node(text: str, names: Mapping[str, str]) -> bool:
    return any(word in names for word in _WORD.findall(text))


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def _plain(text: str) -> str:
    """A literal without what repr adds to it."""
    return text.removeprefix("torch.").strip("'\"")


def _field(part: str) -> Field:
    keyword = _KEYWORD.fullmatch(part)
    return Field(keyword[1], keyword[2]) if keyword else Field("", part)


def _shown(text: str, marked: bool) -> Markup:
    shown = Markup(".<wbr>").join(text.split(".")) if _is_name(text) else escape(text)
    unbroken = ";white-space:nowrap" if _NUMBER.fullmatch(text) else ""
    if marked:
        return Markup('<mark style="{}">{}</mark>').format(_MARKED + unbroken, shown)
    return Markup('<span style="{}">{}</span>').format(unbroken[1:], shown) if unbroken else shown


def _is_name(text: str) -> bool:
    """A dotted name; a number has its dot in one piece."""
    return bool(re.fullmatch(r"[A-Za-z_][\w.]*", text))
