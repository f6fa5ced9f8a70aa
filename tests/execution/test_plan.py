"""Everything that can be wrong with what is given is told before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shared_investigation import PARAMETERS

from fusionkit.errors import MisuseError
from fusionkit.execution.plan import make_plan


def plan_for(investigation: Any, **options: Any) -> Any:
    return make_plan(
        investigation.yaml, notebooks_dir=investigation.notebooks, out=investigation.out, **options
    )


def test_notebooks_run_in_the_order_of_their_numbers(investigation: Any) -> None:
    for name in ("07_last", "01_first", "03_middle"):
        investigation.add(name)
    (investigation.notebooks / "scratch.ipynb").write_text("not numbered, not looked at")
    assert [step.name for step in plan_for(investigation).steps] == ["01_first", "03_middle", "07_last"]
    chosen = plan_for(investigation, notebooks=["7", "01_first", "01"])
    assert [step.name for step in chosen.steps] == ["01_first", "07_last"]


def test_without_a_selection_only_the_first_jobs_notebooks_run(investigation: Any) -> None:
    for name in ("01_first", "09_last", "11_other_job"):
        investigation.add(name)
    assert [step.name for step in plan_for(investigation).steps] == ["01_first", "09_last"]
    assert [step.name for step in plan_for(investigation, notebooks=["11"]).steps] == ["11_other_job"]


def test_the_yaml_selects_unless_the_command_does(investigation: Any) -> None:
    for name in ("01_first", "02_second"):
        investigation.add(name)
    investigation.yaml.write_text('notebooks: ["02"]\n')
    assert [step.name for step in plan_for(investigation).steps] == ["02_second"]
    assert [step.name for step in plan_for(investigation, notebooks=["01"]).steps] == ["01_first"]


def test_the_yaml_may_hold_parameters_of_notebooks_that_are_not_selected(investigation: Any) -> None:
    investigation.add("01_first")
    other = investigation.add("02_second")
    text = other.read_text().replace("subject: str", 'api_stage: str = \\"\\"\\nsubject: str')
    other.write_text(text.replace('\\"rope\\": None', '\\"rope\\": None, \\"gelu\\": None'))
    investigation.yaml.write_text("api_stage: passed\nexpected_sites: {gelu: 6}\n")
    steps = plan_for(investigation, notebooks=["01"], overrides=["expected_sites.rope=8"]).steps
    assert "api_stage" not in steps[0].parameters
    assert steps[0].parameters["expected_sites"] == {"rms_norm": None, "rope": 8}
    for override in ("api_stage=x", "expected_sites.gelu=7"):
        assert plan_for(investigation, overrides=[override]).steps[1].parameters["api_stage"]
        with pytest.raises(MisuseError, match="no notebook takes"):
            plan_for(investigation, notebooks=["01"], overrides=[override])


def test_a_subject_may_be_a_factory_or_a_file(
    investigation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    investigation.add("01_a")
    (tmp_path / "mymodels").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    capsule = tmp_path / "capsule.json"
    capsule.write_text("{}")
    for subject in ("mymodels.flux:build", str(capsule), "llama"):
        assert (
            plan_for(investigation, overrides=[f"subject={subject}"]).steps[0].parameters["subject"]
            == subject
        )


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("subject=no_such_module:build", "no module 'no_such_module'"),
        ("size=huge", "size is 'huge'; use one of: tiny, full"),
        ("dtype=int4", "dtype is 'int4'"),
        ("target=gpu", "target is 'gpu'"),
        ("window=between", "window is 'between'"),
        ("decompositions=all", "decompositions is 'all'"),
        ("seed=-1", "seed is -1"),
    ],
)
def test_a_value_that_cannot_be_is_told_before_anything_is_written(
    investigation: Any, override: str, told: str
) -> None:
    extra = ["size", "dtype", "target", "window", "decompositions"]
    cell = PARAMETERS + "".join(f'{name}: str = "any"\n' for name in extra) + "seed: int = 0\n"
    investigation.add("01_a", parameters=cell)
    with pytest.raises(MisuseError, match=re.escape(told)):
        plan_for(investigation, overrides=[override])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def syntax_error(investigation: Any) -> dict[str, Any]:
    bad = write(investigation.yaml.parent / "bad.py", "def f(:\n")
    return {"overrides": [f"pattern_file={bad}"]}


def unreadable_yaml(investigation: Any) -> dict[str, Any]:
    investigation.yaml.write_text("a: [1")
    return {}


def no_notebooks_dir(investigation: Any) -> dict[str, Any]:
    return {"notebooks_dir": investigation.notebooks / "none"}


def broken_notebook(investigation: Any) -> dict[str, Any]:
    write(investigation.notebooks / "02_b.ipynb", "{}")
    return {}


def two_of_one_number(investigation: Any) -> dict[str, Any]:
    investigation.add("01_again")
    return {}


def unknown_pattern(investigation: Any) -> dict[str, Any]:
    investigation.add("02_b", parameters=f"{PARAMETERS}\npatterns: list[str] = []")
    return {"overrides": ["patterns=[rms_nrom]"]}


CASES: list[tuple[Callable[[Any], dict[str, Any]], str]] = [
    (lambda i: {"overrides": ["subjct=flux"]}, "did you mean subject"),
    (lambda i: {"overrides": ["expected_sites.rms_nrm=1"]}, "did you mean rms_norm"),
    (lambda i: {"overrides": ["expected_sites.rms_norm=many"]}, "takes dict[str, int | None]"),
    (unknown_pattern, "-P patterns=[rms_nrom]: unknown pattern 'rms_nrom'; did you mean 'rms_norm'?"),
    (lambda i: {"overrides": ["subject=fluxx"]}, "unknown subject 'fluxx'; did you mean 'flux'"),
    (lambda i: {"overrides": ["pattern_file=none.py"]}, "none.py (No such file or directory)"),
    (syntax_error, "bad.py line 1: invalid syntax"),
    (unreadable_yaml, "line 1"),
    (lambda i: {"notebooks": ["09"]}, "--notebooks 09: no such notebook; known: 01_a"),
    (lambda i: {"notebooks": ["01_b"]}, "did you mean '01_a'"),
    (no_notebooks_dir, "no such folder of notebooks"),
    (broken_notebook, "02_b.ipynb: not a notebook"),
    (two_of_one_number, "two notebooks numbered 01"),
]


@pytest.mark.parametrize(("spoil", "told"), CASES)
def test_what_is_wrong_is_told_in_one_line(
    investigation: Any, spoil: Callable[[Any], dict[str, Any]], told: str
) -> None:
    investigation.add("01_a")
    options = {"notebooks_dir": investigation.notebooks, **spoil(investigation)}
    with pytest.raises(MisuseError) as caught:
        make_plan(investigation.yaml, out=investigation.out, **options)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not investigation.out.parent.exists()


def test_a_notebook_must_take_the_run_folder(investigation: Any) -> None:
    path = investigation.add("01_a")
    path.write_text(path.read_text().replace("run_dir: str", "other_dir: str"))
    with pytest.raises(MisuseError, match="names no run_dir"):
        plan_for(investigation)


def test_the_key_changes_with_all_that_a_result_depends_on(
    investigation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusionkit.execution.plan.package_sha256", lambda: "same")
    path = investigation.add("01_a")
    pattern = write(investigation.yaml.parent / "pattern.py", "EPS = 1e-6\n")
    override = f"pattern_file={pattern}"
    keys = {plan_for(investigation).steps[0].key, plan_for(investigation, overrides=[override]).steps[0].key}
    pattern.write_text("EPS = 1e-5\n")
    keys.add(plan_for(investigation, overrides=[override]).steps[0].key)
    keys.add(plan_for(investigation, overrides=["expected_sites.rope=8"]).steps[0].key)
    path.write_text(path.read_text() + "\n")
    keys.add(plan_for(investigation).steps[0].key)
    monkeypatch.setattr("fusionkit.execution.plan.package_sha256", lambda: "other")
    keys.add(plan_for(investigation).steps[0].key)
    assert len(keys) == 6
    assert plan_for(investigation).steps[0].key in keys
