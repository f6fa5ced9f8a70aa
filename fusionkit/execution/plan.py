"""The plan of a run, checked before anything is written."""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fusionkit
from fusionkit.config import DECOMPOSITIONS, TARGETS, WINDOWS
from fusionkit.environment import package_sha256
from fusionkit.errors import MisuseError, near_names
from fusionkit.execution.parameter_cell import NotebookSpec, read_spec
from fusionkit.execution.parameters import (
    Parameters,
    apply_overrides,
    check_names,
    for_notebook,
    load_parameters,
    overridden,
)
from fusionkit.fusions import pattern_names
from fusionkit.store import sha256_bytes, sha256_file, to_json
from fusionkit.subjects.spec import DTYPE_ALIASES, DTYPES, SIZES

_NUMBERED = re.compile(r"^(?P<number>\d\d)_\w+$")
_EXTRA = ("papermill", "nbclient", "nbconvert", "nbformat", "ipykernel", "psutil")


@dataclass(frozen=True, slots=True)
class Step:
    """One notebook of a run. `key`: hash of everything its result depends on, except the machine."""

    number: int
    source: Path
    parameters: Mapping[str, Any]
    sha256: str
    key: str

    @property
    def name(self) -> str:
        """The notebook's file name without suffix; also that of its page and its executed form."""
        return self.source.stem


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps in order, and their input files: (path, kind, sha256)."""

    parameters: Parameters
    run_dir: Path
    steps: tuple[Step, ...]
    inputs: tuple[tuple[Path, str, str], ...]
    package_sha256: str
    notebooks_dir: Path

    def other_inputs(self, names: Iterable[str]) -> list[tuple[Path, str, str]]:
        """The named notebooks outside the selection, as inputs."""
        selected = {step.name for step in self.steps}
        others = [self.other_step(name) for name in names if name not in selected]
        return [(step.source.resolve(), "notebook", step.sha256) for step in others if step is not None]

    def other_step(self, name: str) -> Step | None:
        """The step of a notebook outside the selection; None if its file or parameters no longer fit."""
        try:
            return plan_step(self.notebooks_dir / f"{name}.ipynb", self.parameters, self.package_sha256)
        except MisuseError:
            return None


def make_plan(
    params_path: Path,
    *,
    notebooks: Sequence[str] | None = None,
    overrides: Iterable[str] = (),
    out: Path | None = None,
    notebooks_dir: Path | None = None,
) -> Plan:
    """Read and check everything that a run depends on; writes nothing. Raises MisuseError."""
    _check_installed()
    params = apply_overrides(load_parameters(params_path), overrides)
    folder = notebooks_dir or Path(fusionkit.__file__).parent.parent / "notebooks"
    available = _notebooks(folder)
    selected = _select(available, notebooks if notebooks is not None else params.notebooks)
    specs = [read_spec(path) for path in selected]
    check_names([*specs, *_readable(path for path in available if path not in selected)], params)
    check_names(specs, overridden(params))
    for spec in specs:
        if spec.get("run_dir") is None:
            raise MisuseError(
                f'{spec.path}: its parameter cell names no run_dir: str = "evidence/interactive"'
            )
    files = _check_files(params)
    _check_choices(params)
    _check_subject(params)
    package = package_sha256()
    steps = tuple(plan_step(path, params, package) for path in selected)
    inputs = [(params_path.resolve(), "parameters", sha256_file(params_path))]
    inputs += [(path, name, sha256_file(path)) for name, path in files.items()]
    inputs += [(step.source.resolve(), "notebook", step.sha256) for step in steps]
    run_dir = (out or Path("evidence") / params_path.stem).absolute()
    return Plan(params, run_dir, steps, tuple(inputs), package, folder)


def plan_step(source: Path, params: Parameters, package: str) -> Step:
    """The step of one notebook. Raises MisuseError if the parameters do not fit it."""
    number = _number(source)
    parameters = for_notebook(read_spec(source), params)
    files = {
        name: sha256_file(Path(value))
        for name, value in parameters.items()
        if _is_file_parameter(name, value)
    }
    sha256 = sha256_file(source)
    depends = {"parameters": parameters, "files": files, "notebook": sha256, "fusionkit": package}
    return Step(number, source, parameters, sha256, sha256_bytes(to_json(depends).encode("utf-8")))


def _notebooks(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise MisuseError(f"{folder}: there is no such folder of notebooks; give one with --notebooks-dir")
    notebooks = sorted(path for path in folder.glob("*.ipynb") if _NUMBERED.match(path.stem))
    if not notebooks:
        raise MisuseError(
            f"{folder}: holds no notebook named NN_name.ipynb; give another with --notebooks-dir"
        )
    numbers = [_number(path) for path in notebooks]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise MisuseError(f"{folder}: holds two notebooks numbered {twice:02d}; rename one")
    return notebooks


def _readable(paths: Iterable[Path]) -> Iterator[NotebookSpec]:
    """The specs of the notebooks outside the selection, whose parameters a YAML may have too."""
    for path in paths:
        with contextlib.suppress(MisuseError):
            yield read_spec(path)


def _select(available: Sequence[Path], wanted: Sequence[str] | None) -> list[Path]:
    if wanted is None:  # one job: 01 to 09 develop patterns, 11 to 19 replace code by fused ops
        return [path for path in available if _number(path) // 10 == _number(available[0]) // 10]
    chosen = set()
    for word in wanted:
        match = [
            p for p in available if word in (p.stem, p.name) or (word.isdigit() and int(word) == _number(p))
        ]
        if not match:
            near = near_names(word, [p.stem for p in available])
            raise MisuseError(f"--notebooks {word}: no such notebook; {near}")
        chosen.add(match[0])
    return sorted(chosen)


def _number(path: Path) -> int:
    match = _NUMBERED.match(path.stem)
    if match is None:
        raise MisuseError(f"{path}: a notebook of a run is named NN_name.ipynb")
    return int(match["number"])


# Parameters that have a closed list of values, checked before anything is written.
_CHOICES: dict[str, tuple[str, ...]] = {
    "size": SIZES,
    "dtype": (*DTYPES, *DTYPE_ALIASES),
    "target": TARGETS,
    "second_target": TARGETS,
    "window": WINDOWS,
    "decompositions": DECOMPOSITIONS,
}


def _check_choices(params: Parameters) -> None:
    """Values from closed lists, names of patterns, and a seed that torch takes."""
    for name, allowed in _CHOICES.items():
        value = params.values.get(name)
        if value is not None and value not in allowed:
            raise MisuseError(f"{params.origin(name)}: {name} is {value!r}; use one of: {', '.join(allowed)}")
    patterns = params.values.get("patterns")
    for name in patterns if isinstance(patterns, list) else ():
        if name not in pattern_names():
            near = near_names(str(name), pattern_names())
            raise MisuseError(f"{params.origin('patterns')}: unknown pattern {name!r}; {near}")
    seed = params.values.get("seed", 0)
    if isinstance(seed, int) and not 0 <= seed < 2**63:
        raise MisuseError(f"{params.origin('seed')}: seed is {seed}; use 0 to 2**63 - 1")


def _check_subject(params: Parameters) -> None:
    """Check that the subject is a name of the table, a file, or module:factory of a module that exists.

    The module is not imported.
    """
    name = params.values.get("subject")
    if not isinstance(name, str) or Path(name).is_file():
        return
    where = params.origin("subject")
    if ":" in name:
        top = name.partition(":")[0].partition(".")[0]
        places = [str(Path.cwd()), *sys.path]
        if top in sys.builtin_module_names or importlib.machinery.PathFinder.find_spec(top, places):
            return
        raise MisuseError(f"{where}: no module '{top}' for subject {name!r}; run where it can be imported")
    from fusionkit.subjects.table import SUBJECTS, unknown_subject

    if name not in SUBJECTS:
        raise MisuseError(f"{where}: {unknown_subject(name)}")


def _check_files(params: Parameters) -> dict[str, Path]:
    """The files that the parameters name; checks that each exists, and that a .py file parses."""
    files = {}
    for name, value in params.values.items():
        if not _is_file_parameter(name, value):
            continue
        path = Path(value)
        where = f"{params.origin(name)}: {name}"
        try:
            source = path.read_bytes()
            if path.suffix == ".py":
                ast.parse(source, filename=str(path))
        except OSError as error:
            raise MisuseError(
                f"{where}: cannot read {path} ({error.strerror}); give an existing file"
            ) from error
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            what = getattr(error, "msg", None) or str(error)
            raise MisuseError(
                f"{where}: {path}{f' line {line}' if line else ''}: {what}; correct it"
            ) from error
        files[name] = path
    return files


def _is_file_parameter(name: str, value: Any) -> bool:
    """Whether the value is a file: a file parameter, or a capsule as subject."""
    if not isinstance(value, str) or not value:
        return False
    return name.endswith(("_file", "_profile")) or (name == "subject" and value.endswith(".json"))


def _check_installed() -> None:
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise MisuseError(f"{', '.join(missing)}: not installed; pip install 'fusionkit[notebooks]'")
