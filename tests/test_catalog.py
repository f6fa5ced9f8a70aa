"""The mismatch catalog and the page of tools are what their examples print; every cause type is shown."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusionkit.match.explanation.causes import FIXES

ROOT = Path(__file__).resolve().parents[1]
GENERATOR = ROOT / "references" / "make_catalog.py"
TYPES = [kind for kind in FIXES if kind != "unexplained"]
# Where the author has to choose, and where no new pattern file helps.
NOT_REPAIRED = {"extra_user"}
NO_FILE_HELPS = {
    *("mutation_region", "missing_meta", "wrong_window", "cycle", "graph_break", "unsupported_dtype"),
    "higher_order_form",  # the mutating op itself, not a repaired form of it
    *("not_registered", "consumed_earlier", "flag_off"),
}


@pytest.fixture(scope="module")
def catalog():
    spec = importlib.util.spec_from_file_location("make_catalog", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def section(kind: str) -> str:
    """What stands between the marks of a type."""
    text = (ROOT / "references" / "mismatch-catalog.md").read_text("utf-8")
    return text.partition(f"<!-- begin: {kind} -->\n")[2].partition(f"<!-- end: {kind} -->\n")[0]


def outputs(kind: str) -> str:
    """What the commands of a type's section print."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", section(kind), re.MULTILINE | re.DOTALL)
    return "\n".join(body for language, body in blocks if not language)


def test_the_pages_hold_what_the_examples_print():
    done = subprocess.run([sys.executable, GENERATOR, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_type_has_a_section_and_the_seven_classical_ones_come_first(catalog):
    text = (ROOT / "references" / "mismatch-catalog.md").read_text("utf-8")
    headings = re.findall(r"^## (\w+)$", text, re.MULTILINE)
    assert headings == list(FIXES)
    assert headings[:7] == [
        "decomposition",
        "argument_order",
        "dtype_path",
        "missing_node",
        "dim_literal",
        "scalar_literal",
        "parameter_source",
    ]
    assert [kind for kind in catalog.CATALOG if kind in FIXES] == TYPES


@pytest.mark.parametrize("kind", [*TYPES, "stale_compile_cache"])
def test_the_example_shows_its_type_first(kind):
    told = re.findall(rf"\b({'|'.join([*FIXES, 'stale_compile_cache'])}): ", outputs(kind))
    assert told[0] == kind


def test_a_repair_is_shown_wherever_a_file_helps():
    assert {kind for kind in TYPES if "$ fusionkit repair " not in outputs(kind)} == NO_FILE_HELPS


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind not in NO_FILE_HELPS])
def test_the_repair_hits_the_site_or_says_why_none_is_offered(kind):
    said = outputs(kind)
    (counted,) = re.findall(r"(\d+) hits before, (\d+) after", said)
    assert counted == (("0", "0") if kind in NOT_REPAIRED else ("0", "1"))
    assert ("no repair is offered: " in said) == (kind in NOT_REPAIRED)


def test_another_table_is_no_matter_of_the_window():
    told = re.findall(r"^    (\w+): pattern node", outputs("decomposition"), re.MULTILINE)
    assert told == ["decomposition"] * 3
    assert "hits when traced with 'none'" in outputs("decomposition")


def test_all_differences_of_one_site_are_named():
    told = re.findall(r"^    (\w+): pattern node", outputs("several"), re.MULTILINE)
    assert sorted(told) == ["argument_order", "dim_literal", "scalar_literal"]


def test_a_changed_output_is_seen(catalog, monkeypatch, capsys):
    page = "pattern-tools.md"
    text = (ROOT / "references" / page).read_text("utf-8")
    monkeypatch.setattr(catalog, "pages", lambda: {page: text.replace("falls here", "falls there")})
    monkeypatch.setattr(sys, "argv", ["make_catalog.py", "--check"])
    assert catalog.main() == 1
    assert capsys.readouterr().out.startswith(f"{page}: not what the examples print")


def test_a_block_that_the_page_lacks_is_named(catalog):
    with pytest.raises(ValueError, match="block probe does not stand once"):
        catalog.filled("# A page\n", {"probe": "x"})


def test_a_command_that_is_misuse_is_no_example(catalog, tmp_path):
    with pytest.raises(RuntimeError, match="exit code 2: fusionkit: "):
        catalog.Runner(tmp_path)("fusionkit lint nowhere_pattern.py")
