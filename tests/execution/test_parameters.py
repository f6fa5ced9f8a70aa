"""Parameter cells, YAML, overrides, and what is refused with which line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.execution.parameter_cell import NotebookSpec, fits, read_spec
from fusionkit.execution.parameters import (
    Parameters,
    apply_overrides,
    check_names,
    for_notebook,
    load_parameters,
)

CELL = """\
subject: str = "flux"
k: float = 2
train: bool = False
pattern_file: str | None = None
axes: list[int] = [2, 3]
expected_sites: dict[str, int | None] = {"rms_norm": None, "rope": 8}
run_dir: str = "evidence/interactive"
"""


def percent_notebook(path: Path, cell: str = CELL) -> Path:
    path.write_text(f'# %% [markdown]\n# # Title\n# %% tags=["parameters"]\n{cell}\n# %%\nprint(subject)\n')
    return path


def ipynb_notebook(path: Path, cell: str = CELL) -> Path:
    cells = [
        {"cell_type": "markdown", "metadata": {"tags": ["parameters"]}, "source": "# not code"},
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": cell.splitlines(keepends=True)},
        {"cell_type": "code", "metadata": {}, "source": "raise SystemExit"},
    ]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}))
    return path


@pytest.fixture
def spec(tmp_path: Path) -> NotebookSpec:
    return read_spec(percent_notebook(tmp_path / "01_a.py"))


def parameters(values: dict[str, Any]) -> Parameters:
    return Parameters(Path("p.yaml"), values)


def test_both_forms_of_a_notebook_say_the_same(tmp_path: Path) -> None:
    percent = read_spec(percent_notebook(tmp_path / "a.py"))
    ipynb = read_spec(ipynb_notebook(tmp_path / "a.ipynb"))
    assert percent.parameters == ipynb.parameters
    assert [p.name for p in ipynb.parameters][:2] == ["subject", "k"]
    found = ipynb.get("expected_sites")
    assert found is not None
    assert (found.default, found.annotation) == ({"rms_norm": None, "rope": 8}, "dict[str, int | None]")


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("subject = 'flux'", "line 1: only `name: type = literal`"),
        ("subject: str", "line 1: only `name: type = literal`"),
        ("a: int = 1\nimport os", "line 2: only `name: type = literal`"),
        ("n: int = 1 + len('a')", "line 1"),
        ("n: int = 'one'", "'one' does not fit int"),
        ("n: int = True", "True does not fit int"),
        ("n: Path = 'x'", "the annotation Path is not one"),
        ("d: dict[str, dict[str, int]] = {'a': {'b': 1}}", "at most one level of dict"),
        ("n: int = (", "line 1"),
    ],
)
def test_a_cell_of_anything_but_annotated_literals_is_refused(tmp_path: Path, cell: str, told: str) -> None:
    with pytest.raises(MisuseError) as caught:
        read_spec(percent_notebook(tmp_path / "01_a.py", cell))
    assert told in str(caught.value)
    assert "01_a.py" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_notebook_needs_exactly_one_parameter_cell(tmp_path: Path) -> None:
    path = tmp_path / "01_a.py"
    path.write_text("# %%\na: int = 1\n")
    with pytest.raises(MisuseError, match="has 0 cells tagged"):
        read_spec(path)
    path.write_text('# %% tags=["parameters"]\na: int = 1\n' * 2)
    with pytest.raises(MisuseError, match="has 2 cells tagged"):
        read_spec(path)


def test_nothing_of_a_notebook_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    with pytest.raises(MisuseError):
        read_spec(percent_notebook(tmp_path / "01_a.py", f"x: str = open({str(marker)!r}, 'w').name"))
    assert not marker.exists()


def test_yaml_is_read_with_lines_and_paths_of_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "flux.yaml"
    path.parent.mkdir()
    path.write_text(
        "# note\nsubject: flux\npattern_file: mine.py\nexpected_sites:\n  rms_norm: 12\nk: 1e-5\n"
    )
    params = load_parameters(path)
    assert params.values == {
        "subject": "flux",
        "pattern_file": str(path.parent / "mine.py"),
        "expected_sites": {"rms_norm": 12},
        "k": 1e-5,
    }
    assert params.origins["expected_sites.rms_norm"] == f"{path} line 5"
    assert params.notebooks is None


@pytest.mark.parametrize("text", ['notebooks: "01, 05"', 'notebooks: ["01", "05"]', "notebooks: [01, 05]"])
def test_yaml_can_select_notebooks(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text + "\nsubject: flux\n")
    params = load_parameters(path)
    assert params.notebooks == ("01", "05")
    assert "notebooks" not in params.values


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1\nb: 2\n", "line 2"),
        ("a: 1\na: 2\n", "line 2: the key 'a' is given twice"),
        ("a: {b: 1, b: 2}\n", "the key 'b' is given twice"),
        ("- 1\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("1: 2\n", "must be a mapping of parameter names"),
        ("a: !!python/object:os.system ls\n", "line 1"),
        ("a: \x00\n", "special characters"),
    ],
)
def test_unreadable_yaml_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(MisuseError) as caught:
        load_parameters(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_yaml_is_told(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"none\.yaml: cannot read"):
        load_parameters(tmp_path / "none.yaml")


def test_overrides_reach_one_key_and_keep_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    before = parameters({"expected_sites": {"rms_norm": 12, "rope": 8}, "train": False})
    after = apply_overrides(
        before, ["expected_sites.rms_norm=13", "train=true", "pattern_file=x.py", "k=1e-5", "subject=null"]
    )
    assert after.values == {
        "expected_sites": {"rms_norm": 13, "rope": 8},
        "train": True,
        "pattern_file": str(tmp_path / "x.py"),
        "k": 1e-5,
        "subject": None,
    }
    assert before.values["expected_sites"] == {"rms_norm": 12, "rope": 8}
    assert after.origins["expected_sites.rms_norm"] == "-P expected_sites.rms_norm=13"


@pytest.mark.parametrize("text", ["subject", "=1", "a.b.c=1", "a.=1", "a b=1", "a={b: 1}", "a=[1", "a=b: c"])
def test_an_override_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(MisuseError, match="-P") as caught:
        apply_overrides(parameters({}), [text])
    assert "\n" not in str(caught.value)


@given(st.one_of(st.integers(), st.booleans(), st.none(), st.text("abcxyz_-", min_size=1, max_size=9)))
def test_an_override_is_what_yaml_makes_of_it(value: Any) -> None:
    text = yaml.safe_dump(value, default_flow_style=True).split("\n")[0]
    assert apply_overrides(parameters({}), [f"a={text}"]).values == {"a": value}


def test_a_notebook_gets_what_it_names_over_its_defaults(spec: NotebookSpec) -> None:
    given_values = for_notebook(spec, parameters({"expected_sites": {"rms_norm": 12, "gelu": 6}, "other": 1}))
    assert given_values["expected_sites"] == {"rms_norm": 12, "rope": 8}
    assert given_values["subject"] == "flux"
    assert "other" not in given_values
    assert "run_dir" not in given_values


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"subjct": "flux"}, "'subjct'; did you mean subject?"),
        ({"zzz": 1}, "'zzz'; there are axes, expected_sites, k,"),
        ({"expected_sites": {"rms_nrm": 1}}, "the key 'rms_nrm' of expected_sites; did you mean rms_norm?"),
        ({"run_dir": "x"}, "run_dir is given with --out"),
    ],
)
def test_a_name_that_no_notebook_has_is_refused(
    spec: NotebookSpec, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(MisuseError) as caught:
        check_names([spec], parameters(values))
    assert told in str(caught.value)
    assert "p.yaml" in str(caught.value)


def test_a_name_of_any_selected_notebook_is_enough(tmp_path: Path, spec: NotebookSpec) -> None:
    other = read_spec(
        percent_notebook(tmp_path / "02_b.py", 'sites: dict[str, int] = {}\nd: dict[str, int] = {"g": 1}')
    )
    check_names([spec, other], parameters({"subject": "flux", "d": {"g": 2}}))
    with pytest.raises(MisuseError, match="'g' of sites; there are none"):
        check_names([spec, other], parameters({"sites": {"g": 2}}))


@pytest.mark.parametrize(
    "values",
    [
        {"subject": 3},
        {"k": "2"},
        {"k": True},
        {"k": float("nan")},
        {"train": 1},
        {"axes": ["x"]},
        {"axes": 2},
        {"expected_sites": {"rms_norm": "12"}},
        {"expected_sites": 12},
    ],
)
def test_a_value_of_another_type_is_refused(spec: NotebookSpec, values: dict[str, Any]) -> None:
    with pytest.raises(MisuseError, match=r"01_a\.py takes"):
        for_notebook(spec, parameters(values))


@given(st.one_of(st.integers(), st.booleans(), st.none(), st.text(), st.floats(allow_nan=False)))
def test_a_scalar_fits_exactly_the_annotations_of_its_type(value: Any) -> None:
    kinds = {"str": str, "int": int, "bool": bool}
    for name, kind in kinds.items():
        assert fits(value, name) == (type(value) is kind)
    assert fits(value, f"{type(value).__name__} | None".replace("NoneType", "int")) == (
        not isinstance(value, float) or value not in (float("inf"), float("-inf"))
    )
