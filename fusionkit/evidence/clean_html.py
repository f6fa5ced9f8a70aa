"""HTML from notebooks made inert: no script, no frame, no form, and nothing that is fetched from elsewhere.

Each piece (a cell's markdown, one output) is cleaned by itself and comes out balanced, so that a tag left
open in one cannot swallow what follows. Rules are in the tables below; what no rule names is kept.
"""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

_DROPPED_WITH_CONTENT = frozenset({"script", "iframe", "object", "applet", "template", "noembed", "noframes"})
_DROPPED_TAGS = frozenset(
    {
        "link",
        "meta",
        "base",
        "html",
        "head",
        "body",
        "title",
        "embed",
        "frame",
        "frameset",
        "noscript",
        "portal",
    }
    | {"form", "input", "button", "select", "textarea", "dialog", "plaintext", "xmp"}
    | {"audio", "video", "source", "track"}
)
_VOID = frozenset({"area", "br", "col", "hr", "img", "wbr"})
_DROPPED_ATTRIBUTES = frozenset(
    {
        "srcset",
        "srcdoc",
        "poster",
        "data",
        "action",
        "formaction",
        "ping",
        "background",
        "manifest",
        "codebase",
    }
    | {"cite", "longdesc", "autofocus", "contenteditable", "target"}
)
_LINKED = frozenset({"src", "href", "xlink:href"})
_IMAGE_DATA = re.compile(r"^data:image/(png|jpeg|gif|webp|svg\+xml)[;,]", re.IGNORECASE)
_SAFE_LINK = re.compile(r"^(https?:|mailto:|#|[^:]*$|[^:]*[/?#])", re.IGNORECASE)
_CSS_FETCH = re.compile(r"@import[^;}]*;?|(?:url|image-set|src)\s*\([^)]*\)?|expression\s*\(", re.IGNORECASE)
_NAME = re.compile(r"^[a-z][a-z0-9:_.-]*$", re.IGNORECASE)


def clean_html(source: str | bytes) -> str:
    """`source` without anything active or fetched; an image that is not embedded becomes its text."""
    cleaner = _Cleaner()
    cleaner.feed(source.decode("utf-8", "replace") if isinstance(source, bytes) else source)
    cleaner.close()
    return cleaner.text()


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self._pieces: list[str] = []
        self._open: list[str] = []
        self._dropping: list[str] = []

    def text(self) -> str:
        return "".join(self._pieces) + "".join(f"</{tag}>" for tag in reversed(self._open))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _DROPPED_WITH_CONTENT:
            self._dropping.append(tag)
        names_picture = tag == "title" and "svg" in self._open
        if self._dropping or (tag in _DROPPED_TAGS and not names_picture) or not _NAME.match(tag):
            return
        kept = _clean_attributes(tag, attrs)
        if tag == "img" and not any(name == "src" for name, _ in kept):
            alternative = next((value for name, value in attrs if name == "alt" and value), "not embedded")
            self._pieces.append(f"<em>[image: {html.escape(alternative)}]</em>")
            return
        attributes = "".join(f' {name}="{html.escape(value)}"' for name, value in kept)
        self._pieces.append(f"<{tag}{attributes}>")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            if tag == self._dropping[-1]:
                self._dropping.pop()
            return
        if tag in self._open:
            while (last := self._open.pop()) != tag:
                self._pieces.append(f"</{last}>")
            self._pieces.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._dropping:
            return
        if self._open and self._open[-1] == "style":
            self._pieces.append(_CSS_FETCH.sub("", data).replace("<", ""))
        else:
            self._pieces.append(html.escape(data, quote=False))

    def handle_entityref(self, name: str) -> None:
        if not self._dropping:
            self._pieces.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        if not self._dropping:
            self._pieces.append(f"&#{name};")


def _clean_attributes(tag: str, attrs: list[tuple[str, str | None]]) -> list[tuple[str, str]]:
    kept = []
    for name, value in ((name.lower(), value or "") for name, value in attrs):
        if name.startswith("on") or name in _DROPPED_ATTRIBUTES or not _NAME.match(name):
            continue
        if name in _LINKED and not _is_harmless(tag, name, value):
            continue
        if name != "href":
            value = _CSS_FETCH.sub(_keep_local, value) if name not in _LINKED else value
        kept.append((name, value))
    return kept


def _is_harmless(tag: str, name: str, value: str) -> bool:
    target = re.sub(r"[\s\x00-\x1f]+", "", value)
    if tag == "a" and name == "href":
        return bool(_SAFE_LINK.match(target))
    return bool(_IMAGE_DATA.match(target)) or (name != "src" and target.startswith("#"))


def _keep_local(match: re.Match[str]) -> str:
    """SVG refers to its own parts by url(#id)."""
    return match[0] if re.match(r"url\s*\(\s*['\"]?#", match[0], re.IGNORECASE) else ""
