"""HTML and SVG from Jinja2 templates: MarkupSafe escapes every value that is not markup already."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

# Names such as a.module.path, a/file.py:12 or ALongClassName may break after a part, into pieces of some length.
_NAME = re.compile(r"[A-Za-z0-9_./:-]{25,}")
_PIECE = re.compile(
    r"""(?:[\w./:-]{9,22}?[./]           # best after a dot or slash
         |[\w./:-]{9,22}?[a-z](?=[A-Z])  # or before a capital
         |[\w./:-]{15,}?_)               # else after an underscore
        (?=[\w./:-]{10,})""",
    re.VERBOSE | re.ASCII,
)
_SMALL_NUMBER = re.compile(r"\b[0-9.]+e-[0-9]+\b")


def breakable(text: str) -> Markup:
    """Escape `text` for HTML; long names in it may break between their parts, 1e-06 nowhere."""
    named = _NAME.sub(lambda name: _PIECE.sub(r"\g<0><wbr>", name[0]), str(escape(text)))
    return Markup(_SMALL_NUMBER.sub(r'<span style="white-space:nowrap">\g<0></span>', named))


def render(template: str, macro: str, *values: object) -> str:
    """Render a macro of `template`, a path below fusionkit/; HTML among the values is passed as `Markup`."""
    return str(getattr(TEMPLATES.get_template(template).module, macro)(*values))


def render_page(template: str, **values: object) -> str:
    """Render a whole page; HTML among the values is passed as `Markup`."""
    return TEMPLATES.get_template(template).render(values)


TEMPLATES = Environment(
    loader=PackageLoader("fusionkit", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["breakable"] = breakable
