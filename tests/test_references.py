"""The documents say what the code does: generated tables, links, commands, named tests, examples that run.

`python tests/test_references.py` writes the generated tables anew.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.cli import COMMANDS, make_parser
from fusionkit.config import TARGETS
from fusionkit.errors import MisuseError
from fusionkit.evidence.phase_records import render_record
from fusionkit.match.explanation.causes import FIXES
from fusionkit.npu.constraints import CONSTRAINTS
from fusionkit.npu.doctor import target_states
from fusionkit.npu.dry.standin import compiler
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS
from fusionkit.npu.target import use_target
from fusionkit.passes.tracing import make_tracer
from fusionkit.pattern_files.lint_rules import RULES
from fusionkit.profile.benefit import ROOT_CAUSES
from fusionkit.profile.copies import COPY_KINDS
from fusionkit.profile.dialects import COLUMNS
from fusionkit.profile.schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
REFERENCES = ROOT / "references"
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, ROOT / "CHANGELOG.md", *sorted(REFERENCES.glob("*.md"))]
EXAMPLE = ROOT / "docs" / "example-evidence.html"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *[[cell(text) for text in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def causes() -> str:
    return table(["type", "what to do"], ((f"[{kind}](#{kind})", fix) for kind, fix in FIXES.items()))


def lint_rules() -> str:
    rows = ((f"`{row.name}`", row.severity, row.what, row.way_out, row.source) for row in RULES)
    return table(["rule", "", "what", "way out", "source"], rows)


def ops() -> str:
    sections = []
    for namespace, schemas in (("npu", SCHEMAS), ("fusionkit", KIT_SCHEMAS)):
        for op, schema in schemas.items():
            rules = [(row.argument, row.rule, row.source) for row in CONSTRAINTS if row.op == op]
            rows = table(["argument", "rule", "source"], rules)
            sections.append(f"### {namespace}::{op}\n\n```\n{schema}\n```\n\n{rows}")
    return "\n\n".join(sections)


def columns() -> str:
    return table(
        ["field", "headers", "source"],
        ((row.field, ", ".join(f"`{alias}`" for alias in row.aliases), row.source) for row in COLUMNS),
    )


def root_causes() -> str:
    return table(
        ["", "cause", "sign", "origin", "way out"],
        ((row.id, row.name, row.sign, row.origin, row.fix) for row in ROOT_CAUSES),
    )


GENERATED: dict[str, dict[str, Callable[[], str]]] = {
    "mismatch-catalog.md": {"causes": causes},
    "pattern-tools.md": {"lint rules": lint_rules},
    "targets.md": {"ops": ops},
    "kernel-profiles.md": {
        "columns": columns,
        "copy kinds": lambda: table(["kind", "where it usually comes from"], COPY_KINDS),
        "schemes": lambda: table(["", "what", "when"], SCHEMES),
        "root causes": root_causes,
    },
}


def with_tables(page: str, text: str) -> str:
    """The page's text with every generated table as it should be."""
    for key, render in GENERATED[page].items():
        begin, end = f"<!-- begin: {key} -->\n", f"<!-- end: {key} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{render()}\n\n{end}{after}"
    return text


@pytest.mark.parametrize("page", GENERATED)
def test_generated_tables_are_what_the_code_says(page):
    text = (REFERENCES / page).read_text("utf-8")
    for key in GENERATED[page]:
        assert text.count(f"<!-- begin: {key} -->\n") == text.count(f"<!-- end: {key} -->\n") == 1
    assert text == with_tables(page, text), "run: python tests/test_references.py"


def test_a_changed_table_is_seen():
    text = (REFERENCES / "targets.md").read_text("utf-8")
    changed = text.replace("below 896", "below 895")
    assert changed != text
    assert with_tables("targets.md", changed) == text


def fences(text: str) -> list[tuple[str, str]]:
    """(language, body) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def without_fences(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", without_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", without_fences(page.read_text("utf-8")))
    assert links or page not in READMES
    for link in links:
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.is_file(), link
        assert path.is_relative_to(ROOT)
        assert not anchor or anchor in headings(path.read_text("utf-8")), link


def commands(text: str) -> set[str]:
    """Every `fusionkit ...` of a page: lines of blocks (with or without "$ ") and code in the text."""
    lines = [line for language, body in fences(text) if language != "python" for line in body.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", without_fences(text))
    found = [re.split(r"  +#|; echo|\s\|\s", line.removeprefix("$ "))[0].strip() for line in lines]
    return {line for line in found if line.startswith("fusionkit ")}


def named_only(text: str) -> set[str]:
    """The commands that the text names without arguments, such as `fusionkit lint`."""
    return set(re.findall(r"`(fusionkit [a-z]+)`", without_fences(text)))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_one_that_the_parser_takes(page):
    text = page.read_text("utf-8")
    assert {command.split()[1] for command in named_only(text)} <= {command.name for command in COMMANDS}
    for command in commands(text) - named_only(text):
        with suppress(MisuseError):  # SUBJECT, FILE.py and the like, which stand for a name
            make_parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize("readme", READMES, ids=name)
def test_the_readme_shows_every_command_and_every_make_target_exists(readme):
    text = readme.read_text("utf-8")
    shown = {command.split()[1] for command in commands(text)}
    assert shown >= {command.name for command in COMMANDS}
    declared = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"[`\n]make ([a-z]+)", text)) <= set(declared[1].split())


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))


@pytest.mark.parametrize("page", sorted(REFERENCES.glob("*.md")), ids=name)
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text("utf-8"))
    assert named
    for file, test in named:
        assert (ROOT / file).is_file(), file
        assert not test or test in names_in(ROOT / file), f"{file}::{test}"


def test_the_evidence_page_names_the_records_keys():
    phase = {
        **dict.fromkeys(("notebook", "verdict", "reason", "subject", "target", "window", "dtype"), "x"),
        **{"phase": 5, "gates": [], "artifacts": [], "hits": {}, "numeric": {}, "benefit": "", "switch": ""},
    }
    text = (REFERENCES / "evidence.md").read_text("utf-8")
    keys = re.findall(r"^- (.*?): ", render_record([phase]), re.MULTILINE)
    assert len(keys) == 4
    for key in [*keys, "；开关状态: "]:
        assert key in text


def test_the_targets_page_shows_what_doctor_says(monkeypatch):
    page = (REFERENCES / "targets.md").read_text("utf-8")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("fusionkit.npu.doctor.is_set_up", lambda: False)
    cpu, _, npu = target_states()
    assert f"{'npu':<8}  not available: {npu.what}" in page
    said = re.escape(f"{'cpu':<8}  available: {cpu.what}")
    assert re.search(re.sub(re.escape(re.escape(torch.__version__)), r"[^\\s,]+", said), page), said
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MisuseError) as raised:
        compiler()
    assert f"npu-dry   not available: {raised.value}" in page


def test_both_readmes_have_a_row_for_every_target():
    for readme in READMES:
        for target in TARGETS:
            assert re.findall(rf"^\| `{target}`.*$", readme.read_text("utf-8"), re.MULTILINE)


def python_blocks(readme: Path) -> list[str]:
    return [body for language, body in fences(readme.read_text("utf-8")) if language == "python"]


def test_both_readmes_show_the_same_code_and_stay_short():
    assert python_blocks(READMES[0]) == python_blocks(READMES[1])
    assert commands(READMES[0].read_text("utf-8")) == commands(READMES[1].read_text("utf-8"))
    for readme in READMES:
        assert readme.read_text("utf-8").count("\n") < 330  # two jobs


def test_the_readmes_pattern_file_hits(tmp_path):
    from shared_models import small_subject

    from fusionkit.config import CompilationConfig, select_patterns
    from fusionkit.passes.compiled import compile_subject

    use_target("cpu")
    file = tmp_path / "flux_rms_norm_pattern.py"
    file.write_text(python_blocks(READMES[0])[0], "utf-8")
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(file),))
    (match,) = compile_subject(small_subject(), config).matches
    assert (match.pattern, match.status, match.module) == ("rms_norm", "hit", "norm")
    assert match.arguments["eps"] == pytest.approx(1e-6)


def test_the_readmes_model_is_a_subject_whose_sites_are_hit(tmp_path, monkeypatch):
    from fusionkit.match.uncounted import hits
    from fusionkit.subjects.load import load_subject

    use_target("cpu")
    (tmp_path / "my_model.py").write_text(python_blocks(READMES[0])[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    report = hits(load_subject("my_model:build"))
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    assert {key: (entry.reason, bool(entry.verdict)) for key, entry in report.patterns.items()} == {
        "rms_norm": ("2 hits of 2 sites", True),
        "gelu": ("2 hits of 2 sites", True),
    }


def test_the_readmes_script_runs_and_writes_its_capsule(tmp_path):
    script = python_blocks(READMES[0])[2] + "\nprint(options['_fusionkit_backend'].hits())\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'rms_norm': 1}\n"
    assert (tmp_path / "my.capsule.json").is_file()


def traced_eps(stand_in: float) -> float:
    """The literal that a trace of F.rms_norm holds for an eps."""
    x, weight = torch.ones(2, 16), torch.ones(16)
    module = make_tracer({})(lambda x, weight: F.rms_norm(x, (16,), weight, stand_in), [x, weight])
    (add,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Scalar)
    return add.args[1]


def test_a_stand_in_has_to_survive_rounding():
    assert traced_eps(0.01171875) == 0.01171875
    assert traced_eps(0.0113377) != 0.0113377


def test_a_functional_in_the_search_part_is_traced_without_mutation():
    def search(x, weight):
        return F.rms_norm(x, (16,), weight, 1e-6)

    def targets(module):
        return {node.target for node in module.graph.nodes}

    given = [torch.ones(2, 16), torch.ones(16)]
    assert torch.ops.aten.add_.Scalar in targets(make_fx(search, {})(*given))
    assert torch.ops.aten.add_.Scalar not in targets(make_tracer({})(search, given))


def test_the_example_page_is_small_and_self_contained():
    text = EXAMPLE.read_text("utf-8")
    assert len(text) < 200_000
    assert not re.search(r"<(script|iframe|link)\b|src=.?https?:", text)
    assert "scalar_literal" in text


@pytest.mark.parametrize("page", [*PAGES, EXAMPLE], ids=name)
def test_no_page_holds_a_path_of_some_machine(page):
    assert not re.search(r"(?<![\w./])/(tmp|work|root|home|usr|mnt|Users)/", page.read_text("utf-8"))


if __name__ == "__main__":
    for page in GENERATED:
        path = REFERENCES / page
        path.write_text(with_tables(page, path.read_text("utf-8")), "utf-8")
