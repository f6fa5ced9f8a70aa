"""The outer skeleton: pins that agree, contracts that refuse, commands that are what the documents say."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from worker_files import LONGEST, SAME_COMPILES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
MODULES = sorted((ROOT / "fusionkit").rglob("*.py"))


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in lines]
    found = {canonicalize_name(r.name): r.specifier for r in parsed}
    assert len(found) == len(parsed), f"a package stands twice: {sorted(r.name for r in parsed)}"
    return found


def constraint_pins() -> dict[str, SpecifierSet]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return requirements([line for line in lines if line and not line.startswith("#")])


def conda_pip() -> dict[str, SpecifierSet]:
    (section,) = (item["pip"] for item in ENVIRONMENT["dependencies"] if isinstance(item, dict))
    return requirements([line for line in section if not line.startswith("-")])


def declared() -> dict[str, SpecifierSet]:
    return requirements([*PROJECT["project"]["dependencies"], *(line for e in EXTRAS.values() for line in e)])


def pinned_version(specifiers: SpecifierSet) -> str | None:
    exact = [s.version for s in specifiers if s.operator == "=="]
    return exact[0] if exact else None


class TestPins:
    def test_every_constraint_is_an_exact_pin_of_a_declared_package_that_it_satisfies(self):
        pins = constraint_pins()
        assert pins
        for name, specifiers in pins.items():
            version = pinned_version(specifiers)
            assert version is not None, f"constraints.txt: {name} is not pinned with =="
            assert name in declared(), f"constraints.txt: {name} is in no extra of pyproject.toml"
            assert declared()[name].contains(version), f"{name} {version} is outside pyproject.toml's range"

    def test_environment_holds_the_declared_packages_and_no_others(self):
        assert set(conda_pip()) == set(declared())

    def test_environment_takes_each_version_from_the_constraints_or_else_from_pyproject(self):
        for name, specifiers in conda_pip().items():
            expected = constraint_pins().get(name, declared()[name])
            assert specifiers == expected, f"environment.yml: {name}{specifiers}, elsewhere {expected}"

    def test_torch_npu_is_of_torchs_version(self):
        torch, torch_npu = (pinned_version(conda_pip()[name]) for name in ("torch", "torch-npu"))
        assert torch is not None
        assert torch_npu is not None
        assert torch_npu.split(".post")[0] == torch

    def test_environment_holds_what_the_notebooks_need(self):
        needed = {"jupyterlab", "ipywidgets", "matplotlib", "pandas", "torch", "torch-npu", "papermill"}
        assert needed <= set(conda_pip())

    def test_an_installed_torch_npu_does_not_load_itself(self):
        assert ENVIRONMENT["variables"]["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"

    def test_torch_npu_is_installed_only_on_request(self):
        assert "torch-npu" in requirements(EXTRAS["npu"])
        others = [line for name, lines in EXTRAS.items() if name != "npu" for line in lines]
        assert "torch-npu" not in requirements([*PROJECT["project"]["dependencies"], *others])

    def test_python_is_the_same_range_everywhere(self):
        wanted = SpecifierSet(">=3.11,<3.14")
        (python,) = (d for d in ENVIRONMENT["dependencies"] if isinstance(d, str) and d.startswith("python"))
        assert Requirement(python).specifier == wanted
        assert SpecifierSet(PROJECT["project"]["requires-python"]) == wanted
        assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "Makefile").read_text("utf-8")
        assert PROJECT["tool"]["mypy"]["python_version"] == "3.11"
        assert PROJECT["tool"]["ruff"]["target-version"] == "py311"


def layer_names() -> list[str]:
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    return [name for layer in layers for name in re.findall(r"\w+", layer)]


def lint_imports(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the project's contracts on a package of empty modules, one for each layer, changed by `files`."""
    package = folder / "fusionkit"
    package.mkdir()
    for name in ("__init__", *layer_names()):
        (package / f"{name}.py").write_text("", "utf-8")
    for name, text in files.items():
        (package / name).write_text(text, "utf-8")
    shutil.copy(ROOT / "pyproject.toml", folder)
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)


class TestImportContracts:
    def test_the_stages_stand_in_the_order_in_which_data_flows(self):
        stages = [
            "npu",
            "subjects",
            "capture",
            "numeric",
            "patterns",
            "passes",
            "match",
            "profile",
            "evidence",
            "widgets",
            "run",
            "cli",
        ]
        assert [name for name in reversed(layer_names()) if name in stages] == stages

    @pytest.mark.parametrize(
        "files",
        [{}, {"cli.py": "import fusionkit.run"}, {"npu.py": "def load():\n    import torch_npu"}],
    )
    def test_imports_that_go_down_are_accepted(self, tmp_path, files):
        done = lint_imports(tmp_path, files)
        assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            ({"errors.py": "import fusionkit.store"}, "fusionkit.errors -> fusionkit.store"),
            ({"patterns.py": "from fusionkit import match"}, "fusionkit.patterns -> fusionkit.match"),
            ({"match.py": "def f():\n    import fusionkit.run"}, "fusionkit.match -> fusionkit.run"),
            ({"run.py": "import fusionkit.cli"}, "fusionkit.run -> fusionkit.cli"),
            ({"cli.py": "import fusionkit.widgets"}, "fusionkit.cli -> fusionkit.widgets"),
            ({"match.py": "def f():\n    import torch_npu"}, "fusionkit.match -> torch_npu"),
            ({"unplaced.py": ""}, "fusionkit.unplaced"),
        ],
    )
    def test_other_imports_are_refused_by_name(self, tmp_path, files, said):
        done = lint_imports(tmp_path, files)
        assert done.returncode == 1
        assert said in done.stdout


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def top_level_imports(tree: ast.Module) -> set[str]:
    """Return the packages that importing the module imports: everything outside functions."""
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return names


def length_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


class TestEveryModule:
    def test_optional_packages_are_imported_in_functions_only(self):
        optional = {"torch_npu", "mindiesd", "ipywidgets", "IPython"}
        imported = {
            name(path): top_level_imports(ast.parse(path.read_text("utf-8"))) & optional for path in MODULES
        }
        assert imported
        assert {module: names for module, names in imported.items() if names} == {}

    def test_modules_are_short(self):
        lengths = {name(path): path.read_text("utf-8").count("\n") for path in MODULES}
        assert {module: length for module, length in lengths.items() if length > 300} == {}

    def test_functions_are_short(self):
        lengths = {
            f"{name(path)}:{node.lineno} {node.name}": length_without_docstring(node)
            for path in MODULES
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert {function: length for function, length in lengths.items() if length > 40} == {}

    def test_names_tell_what_a_module_holds(self):
        empty_words = {"utils", "util", "common", "manager", "helper", "helpers"}
        assert [name(p) for p in MODULES if empty_words & set(re.split(r"[_./]", name(p)))] == []
        assert [name(p) for p in MODULES if p.stem == "base" or p.stem.startswith("base_")] == []


SETTINGS = {
    "PYTHON",
    "VENV",
    "TORCH_INDEX",
    "PARAMETERS",
    "RUN_ARGS",
    "PYTEST_ARGS",
    "ACCEPTANCE_ARGS",
    "LAB_ARGS",
}


def run_make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make without the settings of a make that this test itself may run under."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    inherited = SETTINGS | {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key not in inherited},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def planned(*arguments: str) -> list[str]:
    """Return the lines that make would run."""
    done = run_make("--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class TestCommands:
    def test_make_test_runs_every_check_and_pytest_last(self, tmp_path):
        lines = planned("test", f"VENV={tmp_path / 'v'}", "PYTEST_ARGS=-x")
        commands = [line.removeprefix(f"{tmp_path}/v/bin/").removeprefix("python -m ") for line in lines[-6:]]
        assert commands == [
            "ruff check .",
            "ruff format --check .",
            "mypy --strict fusionkit",
            "lint-imports --no-logo",
            "python tools/pair_notebooks.py --check",
            "pytest --durations=20 -x",
        ]

    def test_make_acceptance_runs_what_make_test_leaves_out(self, tmp_path):
        (command,) = planned("acceptance", f"VENV={tmp_path / 'v'}", "ACCEPTANCE_ARGS=-x")[-1:]
        assert command.endswith("python -m pytest -m acceptance -x")
        assert "-m 'not acceptance'" in PROJECT["tool"]["pytest"]["ini_options"]["addopts"]

    @pytest.mark.parametrize(
        ("target", "extras"),
        [("test", "notebooks,models,dev"), ("evidence", "notebooks,models"), ("lab", "notebooks,models")],
    )
    def test_set_up_installs_the_extras_within_the_constraints(self, tmp_path, target, extras):
        (install,) = (line for line in planned(target, f"VENV={tmp_path / 'v'}") if " pip " in line)
        assert install.endswith(f"-c constraints.txt -e '.[{extras}]'")
        assert "index-url" not in install

    def test_torch_index_is_an_extra_index(self, tmp_path):
        lines = planned("test", f"VENV={tmp_path / 'v'}", "TORCH_INDEX=https://index.invalid/cpu")
        assert " --extra-index-url https://index.invalid/cpu " in "\n".join(lines)

    def test_set_up_happens_once(self, tmp_path):
        (tmp_path / "bin").mkdir()
        for stamp in ("bin/python", ".installed-dev", ".installed-run"):
            (tmp_path / stamp).touch()
        for target in ("test", "evidence"):
            assert " pip " not in "\n".join(planned(target, f"VENV={tmp_path}"))

    def test_make_evidence_is_the_main_job(self):
        assert planned("evidence")[-1].rstrip().endswith("bin/fusionkit run parameters/flux-tiny.yaml")

    def test_a_python_that_does_not_fit_is_refused_and_nothing_made(self, tmp_path):
        done = run_make("test", f"VENV={tmp_path / 'v'}", "PYTHON=false")
        assert done.returncode == 2
        assert 'needs Python 3.11 to 3.13, and "false" is not that' in done.stderr
        assert not (tmp_path / "v").exists()

    def test_without_the_venv_module_the_package_is_named(self, tmp_path):
        python = tmp_path / "python"
        python.write_text('#!/bin/sh\n[ "$1" = -c ]\n', "utf-8")  # right version, but -m venv fails
        python.chmod(0o755)
        done = run_make("test", f"VENV={tmp_path / 'v'}", f"PYTHON={python}")
        assert done.returncode == 2
        assert "python3-venv" in done.stderr

    def test_ci_runs_the_readmes_test_command_with_browser_and_dry_tests_required(self):
        script = ROOT / ".ci" / "run"
        assert script.stat().st_mode & 0o111
        subprocess.run(["bash", "-n", script], check=True)
        lines = script.read_text("utf-8").splitlines()
        assert lines[-1] == "make test"
        assert "export FUSIONKIT_REQUIRE_BROWSER=1 FUSIONKIT_REQUIRE_DRY=1" in lines
        assert "make test" in (ROOT / "README.md").read_text("utf-8")
        assert "make evidence" in (ROOT / "README.md").read_text("utf-8")


def test_the_license_is_apache_2():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert text.lstrip().startswith("Apache License\n")
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_the_changelog_tells_of_the_version_being_built():
    assert f"## {PROJECT['project']['version']}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_files_that_workers_share_by_name_are_there():
    assert [name for name in (*sorted(SAME_COMPILES), *LONGEST) if not (ROOT / name).is_file()] == []
    assert not SAME_COMPILES & {*LONGEST}
