"""The text of a call as op and arguments, and the arguments that differ between a pattern's call and the graph's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.rows import AlignedRow

OP = -1  # the op itself, among the indexes of arguments

_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d.]*e-\d+")  # has a hyphen inside, at which a browser would break it
_WORD = re.compile(r"[A-Za-z_]\w*")
# Marked by weight and line as well as by tint, for readers who do not see colours.
_MARKED = "background:#d4a72c66;color:inherit;font-weight:bold;text-decoration:underline;padding:0 1px"


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a call: its keyword ("" for a positional one) and its text."""

    keyword: str
    text: str

    @property
    def shown(self) -> str:
        """The argument as the call has it."""
        return f"{self.keyword}={self.text}" if self.keyword else self.text


@dataclass(frozen=True, slots=True)
class CallText:
    """`aten.mean.dim(pow_1, [-1], True)` as op and arguments; `fields` is None if the text is no call."""

    op: str
    fields: tuple[Field, ...] | None


def read_call(text: str) -> CallText:
    """Split a call at the commas outside brackets."""
    op, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")"):
        return CallText(text, None)
    parts, depth, start = [], 0, 0
    inside = rest[:-1]
    for index, character in enumerate(inside):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(inside[start:index])
            start = index + 1
    parts.append(inside[start:])
    return CallText(op, tuple(_field(part.strip()) for part in parts if part.strip()))


def call_html(text: str, marked: Collection[int] = ()) -> Markup:
    """The call as escaped HTML that may break after a comma or between the parts of a name; `marked` fields are highlighted."""
    call = read_call(text)
    op = _argument_html(call.op, OP in marked)
    if call.fields is None:
        return op
    inner = Markup(", ").join(
        _argument_html(field.shown, index in marked) for index, field in enumerate(call.fields)
    )
    return Markup("{}(<wbr>{})").format(op, inner)


def differing_fields(
    row: AlignedRow, causes: Sequence[Cause], names: Mapping[str, str]
) -> tuple[frozenset[int], frozenset[int]]:
    """Indexes of the arguments to mark in the pattern's call and in the graph's; OP is the op.

    `causes`: those of this row. `names`: pattern node -> graph node (or literal) of the site's rows.
    """
    if row.state != "differs":
        return frozenset(), frozenset()
    pattern, graph = read_call(row.pattern_call), read_call(row.graph_call)
    if pattern.fields is None or graph.fields is None or pattern.op != graph.op:
        whole = frozenset((OP,)) if any(cause.type != "extra_user" for cause in causes) else frozenset[int]()
        return whole, whole
    pairs = _differing_pairs(pattern.fields, graph.fields, names)
    marked = [
        pair for cause in causes for pair in _of_cause(cause, pattern.fields, graph.fields, pairs, names)
    ]
    return frozenset(a for a, _ in marked if a is not None), frozenset(b for _, b in marked if b is not None)


Fields = Sequence[Field]
Pair = tuple[int | None, int | None]


def _differing_pairs(pattern: Fields, graph: Fields, names: Mapping[str, str]) -> list[Pair]:
    """Arguments that differ with the pattern's nodes under the names of the graph's; None for a side without one."""
    in_pattern, in_graph = (
        {item.keyword or index: index for index, item in enumerate(fields)} for fields in (pattern, graph)
    )
    pairs = [(in_pattern.get(key), in_graph.get(key)) for key in dict.fromkeys([*in_pattern, *in_graph])]
    return [
        (a, b)
        for a, b in pairs
        if a is None or b is None or _renamed(pattern[a].text, names) != graph[b].text
    ]


def _of_cause(
    cause: Cause, pattern: Fields, graph: Fields, pairs: Sequence[Pair], names: Mapping[str, str]
) -> Sequence[Pair]:
    """The pairs to which one cause refers."""
    if cause.type == "extra_user":
        return []
    expected, actual = _plain(cause.expected), _plain(cause.actual)
    with_actual = [(a, b) for a, b in pairs if b is not None and _plain(graph[b].text) == actual]
    exact = [(a, b) for a, b in with_actual if a is not None and _plain(pattern[a].text) == expected]
    if exact:
        return exact
    if cause.type == "kwargs_structure":
        lone = [(a, b) for a, b in pairs if a is None or b is None]
        words = set(_WORD.findall(f"{cause.expected} {cause.actual}"))
        named = [
            (a, b)
            for a, b in lone
            if any(fields[i].keyword in words for fields, i in ((pattern, a), (graph, b)) if i is not None)
        ]
        return named or lone
    return with_actual or [
        (a, b)
        for a, b in pairs
        if a is not None and not names.keys().isdisjoint(_WORD.findall(pattern[a].text))
    ]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: names.get(word[0], word[0]), text)


def _plain(text: str) -> str:
    """A literal without the prefix or quotes of repr."""
    return text.removeprefix("torch.").strip("'\"")


def _field(part: str) -> Field:
    keyword = _KEYWORD.fullmatch(part)
    return Field(keyword[1], keyword[2]) if keyword else Field("", part)


def _argument_html(text: str, marked: bool) -> Markup:
    is_name = re.fullmatch(r"[A-Za-z_][\w.]*", text)  # a number has its dot in one piece
    markup = Markup(".<wbr>").join(text.split(".")) if is_name else escape(text)
    unbroken = ";white-space:nowrap" if _NUMBER.fullmatch(text) else ""
    if marked:
        return Markup('<mark style="{}">{}</mark>').format(_MARKED + unbroken, markup)
    return Markup('<span style="{}">{}</span>').format(unbroken[1:], markup) if unbroken else markup
