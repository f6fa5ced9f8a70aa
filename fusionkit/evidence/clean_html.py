"""HTML from notebooks made inert by allow-lists: nh3 keeps the tags and attributes named here, and drops all others.

Each piece (a cell's markdown, one output) is parsed as a browser parses it and comes out balanced, so that a tag
left open in one cannot swallow what follows. CSS keeps the functions named here; nothing in it loads a file.
"""

from __future__ import annotations

import re

import nh3

_SVG_TAGS = """
    svg g defs symbol use path rect circle ellipse line polyline polygon text tspan title desc marker linearGradient
    radialGradient stop clipPath mask pattern image style
"""
_TAGS = nh3.ALLOWED_TAGS | {"tfoot", "section", "font", "big", *_SVG_TAGS.split()}
_DROPPED_WITH_CONTENT = "script iframe object applet template noembed noframes metadata"
# An attribute of another namespace goes by its local name: href for xlink:href, xlink for xmlns:xlink.
_ATTRIBUTES = """
    id class style title role lang dir tabindex alt src href open type media colspan rowspan scope headers span align valign
    width height border color bgcolor size face cellpadding cellspacing start reversed datetime
    xmlns xlink space version viewBox preserveAspectRatio transform d points pathLength x y x1 y1 x2 y2 cx cy r rx ry
    dx dy fx fy offset rotate fill fill-opacity fill-rule stroke stroke-width stroke-opacity stroke-dasharray
    stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit opacity visibility clip-path clip-rule mask
    marker-start marker-mid marker-end stop-color stop-opacity font-family font-size font-weight font-style text-anchor
    dominant-baseline textLength gradientUnits gradientTransform spreadMethod patternUnits patternTransform
    clipPathUnits maskUnits markerWidth markerHeight markerUnits refX refY orient overflow vector-effect
"""
_TEXT_ATTRIBUTES = {"id", "class", "title", "alt", "headers"}
_IMAGE_DATA = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml)[;,]", re.IGNORECASE)
_PART = re.compile("#")
_LINK = re.compile(r"https?:|mailto:|[^:]*$|[^:]*[/?#]", re.IGNORECASE)
# In CSS: what is no function, or rule with @, of these. url(#id) refers to a part of the same drawing.
_CSS_FUNCTIONS = (
    r"url\(\s*['\"]?#|(?:rgba?|hsla?|calc|min|max|clamp|var|(?:repeating-)?(?:linear|radial|conic)-gradient"
    r"|not|is|where|has|nth-[a-z-]+|lang|minmax|repeat|translate[xyz]?|scale[xyz]?|rotate|skew[xy]?|matrix)\("
)
_CSS_REFUSED = re.compile(
    rf"[\\]|@(?!media\b|supports\b|page\b)[\w-]*[^;{{}}]*;?|(?<![\w-])(?!{_CSS_FUNCTIONS})[\w-]+\([^)<]*\)?",
    re.IGNORECASE,
)
# nh3 writes < and > in attributes as entities, so that a tag ends at the first >.
_PIECE = re.compile(
    r"(?P<style><style[^>]*>)(?P<css>.*?)</style>|<img(?![^>]* src=\")(?:[^>]* alt=\"(?P<alt>[^\"]+)\")?[^>]*>",
    re.DOTALL,
)
# Parts of drawings and formulas. Where one stands outside a drawing, nh3 would drop what it holds too.
_PART_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>svg|animate|circle|defs|desc|discard|ellipse|filter|g|line|path|pattern|polygon|polyline|rect"
    r"|set|stop|switch|symbol|text|title|tspan|use|view|none|semantics|annotation|annotation-xml"
    r"|m(?!ain\b|ap\b|ark\b|arquee\b|enu\b|eta\b|eter\b)[a-z]+)(?=[\s/>])[^>]*>",
    re.IGNORECASE,
)


def clean_html(source: str | bytes) -> str:
    """`source` without anything active or fetched; an image that is not embedded becomes its text."""
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    text = text.encode("utf-8", "replace").decode()  # nh3 takes no half of a surrogate pair
    cleaned = _CLEANER.clean(_without_stray_parts(text))
    return _PIECE.sub(_clean_piece, cleaned).replace("&nbsp;", "\N{NO-BREAK SPACE}")


def _without_stray_parts(text: str) -> str:
    """Drop the tags of parts that stand outside a drawing; their text stays. What this misses, nh3 drops."""
    depth = 0

    def kept(tag: re.Match[str]) -> str:
        nonlocal depth
        if tag["name"].lower() != "svg":
            return tag[0] if depth else ""
        if not tag[0].endswith("/>"):
            depth = max(0, depth + (-1 if tag["end"] else 1))
        return tag[0]

    return _PART_TAG.sub(kept, text)


def _clean_piece(piece: re.Match[str]) -> str:
    """A stylesheet with local CSS only, the text of an image that is not embedded."""
    if piece["style"]:
        return f"{piece['style']}{_local_css(piece['css']).replace('<', '')}</style>"
    return f"<em>[image: {piece['alt'] or 'not embedded'}]</em>"


def _clean_attribute(tag: str, name: str, value: str) -> str | None:
    """The value without what a browser would fetch; None where the attribute must go."""
    if name not in ("href", "src"):
        return value if name in _TEXT_ATTRIBUTES or name.startswith("aria-") else _local_css(value)
    target = re.sub(r"[\s\x00-\x1f]+", "", value)
    allowed = {"a": _LINK, "img": _IMAGE_DATA, "image": _IMAGE_DATA}.get(tag, _PART).match(target)
    return value if allowed else None


def _local_css(text: str) -> str:
    """CSS without escapes, rules and functions that could load a file; a space in place of each, to join no two parts."""
    return _CSS_REFUSED.sub(" ", text)


_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    clean_content_tags=set(_DROPPED_WITH_CONTENT.split()),
    attributes={"*": set(_ATTRIBUTES.split())},
    generic_attribute_prefixes={"aria-"},
    attribute_filter=_clean_attribute,
    url_schemes={"http", "https", "mailto", "data"},
    link_rel=None,
)
