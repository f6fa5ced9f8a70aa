"""Templates escape what goes into them, compile, and travel with the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from fusionkit.templates import TEMPLATES, breakable, render, render_page

ROOT = Path(__file__).resolve().parents[1]
NAMES = [path.relative_to(ROOT / "fusionkit").as_posix() for path in ROOT.glob("fusionkit/*/templates/*")]
TABLES = "widgets/templates/tables.html"


def test_values_are_escaped_once_and_markup_is_not():
    assert "<title>&lt;b&gt;</title>" in render_page("evidence/templates/page.html", title="<b>", body="")
    assert ">&#34;&lt;<" in render(TABLES, "badge", '"<')
    assert "<b>1</b>" in render(TABLES, "heading", Markup("<b>1</b>"))
    assert breakable("<b>") == "&lt;b&gt;"


def test_a_value_that_a_template_lacks_is_an_error():
    with pytest.raises(UndefinedError, match="body"):
        render_page("evidence/templates/page.html", title="t")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(".j2")])  # .j2: for nbconvert
def test_every_template_compiles_and_marks_nothing_as_safe(name):
    source, _, _ = TEMPLATES.loader.get_source(TEMPLATES, name)
    TEMPLATES.get_template(name)
    assert not re.search(r"\|\s*safe\b|Markup", source)
    assert "autoescape" not in source


def test_templates_are_package_data():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["fusionkit"]
    packed = {path for pattern in patterns for path in (ROOT / "fusionkit").glob(pattern)}
    assert len(NAMES) > 5
    assert {ROOT / "fusionkit" / name for name in NAMES} <= packed
