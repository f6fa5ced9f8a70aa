"""Parameters of notebooks from a YAML file and -P, checked against the parameter cells."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fusionkit.errors import MisuseError
from fusionkit.execution.parameter_cell import NotebookSpec, Parameter, fits, one_line
from fusionkit.fusions import FUSIONS

_PATH_SUFFIXES = ("_file", "_dir")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Given values; `origins` maps each name and `name.key` to the place where it was given.

    `notebooks`: the selection under the YAML's key `notebooks`, None for all.
    """

    source: Path
    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)
    notebooks: tuple[str, ...] | None = None

    def origin(self, dotted: str) -> str:
        """The place where a name or `name.key` was given, as far as known; else the file."""
        return self.origins.get(dotted, str(self.source))


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice and reads 1e-5 as a number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_parameters(path: Path) -> Parameters:
    """Read a YAML mapping of parameters; paths in it (`*_file`, `*_dir`) are relative to its folder.

    Raises MisuseError naming the file and the line.
    """
    try:
        node, values = _compose(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(
            f"{path}: cannot read ({one_line(error)}); give a YAML file of parameters"
        ) from error
    except yaml.YAMLError as error:
        raise MisuseError(f"{path}{_yaml_problem(error)}; correct the YAML") from error
    if not isinstance(node, yaml.MappingNode) or not all(isinstance(name, str) for name in values):
        raise MisuseError(f"{path}: must be a mapping of parameter names to values")
    origins: dict[str, str] = {}
    for key, value in node.value:
        origins[key.value] = f"{path} line {key.start_mark.line + 1}"
        for inner, _ in value.value if isinstance(value, yaml.MappingNode) else ():
            origins[f"{key.value}.{inner.value}"] = f"{path} line {inner.start_mark.line + 1}"
    selection = _selection(path, values.pop("notebooks", None))
    return Parameters(path, _with_absolute_paths(values, path.parent), origins, selection)


def apply_overrides(params: Parameters, overrides: Iterable[str]) -> Parameters:
    """`params` overridden by each `name=value` or `name.key=value`; values are YAML scalars.

    Paths are relative to the current folder. Raises MisuseError on an override that is not of that form.
    """
    values, origins = dict(params.values), dict(params.origins)
    for text in overrides:
        dotted, equals, literal = text.partition("=")
        name, *keys = dotted.strip().split(".")
        if not equals or not name.isidentifier() or len(keys) > 1 or not all(keys):
            raise MisuseError(f"-P {text}: must be name=value or name.key=value")
        value = _scalar(text, literal)
        if keys:
            previous = values.get(name)
            values[name] = {**(previous if isinstance(previous, dict) else {}), keys[0]: value}
        else:
            values |= _with_absolute_paths({name: value}, Path.cwd())
        origins[name] = origins[".".join((name, *keys))] = f"-P {text}"
    return Parameters(params.source, values, origins, params.notebooks)


def overridden(params: Parameters) -> Parameters:
    """Only what was given with -P."""
    given = {dotted for dotted, origin in params.origins.items() if origin.startswith("-P ")}
    values: dict[str, Any] = {}
    for name, value in params.values.items():
        keys = {key for key in value if f"{name}.{key}" in given} if isinstance(value, dict) else set()
        if name in given:
            values[name] = {key: value[key] for key in keys} if keys else value
    return Parameters(params.source, values, params.origins)


def check_names(specs: Sequence[NotebookSpec], params: Parameters) -> None:
    """Raise MisuseError for a parameter, or a key of one, that no notebook has."""
    known: dict[str, list[Parameter]] = {}
    for parameter in (p for spec in specs for p in spec.parameters if p.name != "run_dir"):
        known.setdefault(parameter.name, []).append(parameter)
    for name, value in params.values.items():
        if name == "run_dir":
            raise MisuseError(f"{params.origin(name)}: run_dir is given with --out")
        if name not in known:
            raise MisuseError(
                f"{params.origin(name)}: no notebook takes the parameter {name!r}{_near(name, known)}"
            )
        if isinstance(value, dict) and all(_is_dict(p) for p in known[name]):
            _check_keys(params, name, value, {key for p in known[name] for key in _keys(p)})


def _check_keys(params: Parameters, name: str, value: Mapping[str, Any], known: set[str]) -> None:
    for key in value:
        if key not in known:
            where, near = params.origin(f"{name}.{key}"), _near(str(key), known)
            raise MisuseError(f"{where}: no notebook takes the key {key!r} of {name}{near}")


def for_notebook(spec: NotebookSpec, params: Parameters) -> dict[str, Any]:
    """The notebook's parameters except `run_dir`: given values, else the cell's defaults.

    Raises MisuseError if a value does not fit the annotation. Names are checked by `check_names`.
    """
    return {p.name: _value(spec, p, params) for p in spec.parameters if p.name != "run_dir"}


def _value(spec: NotebookSpec, parameter: Parameter, params: Parameters) -> Any:
    if parameter.name not in params.values:
        return parameter.default
    given = params.values[parameter.name]
    if not fits(given, parameter.annotation):
        raise MisuseError(
            f"{params.origin(parameter.name)}: {parameter.name} is {given!r}, "
            f"but {spec.path.name} takes {parameter.annotation}"
        )
    if _is_dict(parameter) and isinstance(given, dict):
        return {**parameter.default, **{k: v for k, v in given.items() if k in _keys(parameter)}}
    return given


def _keys(parameter: Parameter) -> set[str]:
    """The allowed keys of a dict parameter: those of its default, for expected_sites the names of the fusions."""
    if parameter.name == "expected_sites" and not parameter.default:
        return {row.name for row in FUSIONS}
    return set(parameter.default)


def _is_dict(parameter: Parameter) -> bool:
    return isinstance(parameter.default, dict)


def _compose(text: str) -> tuple[yaml.Node | None, Any]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        return node, None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def _scalar(text: str, literal: str) -> Any:
    try:
        value = _compose(literal)[1]
    except yaml.YAMLError as error:
        raise MisuseError(f"-P {text}: the value is not YAML{_yaml_problem(error, lines=False)}") from error
    if isinstance(value, dict):
        raise MisuseError(f"-P {text}: the value is a mapping; give its keys as name.key=value, or quote it")
    return value


def _selection(path: Path, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = value if isinstance(value, list) else str(value).split(",")
    if not names or not all(isinstance(name, str | int) for name in names):
        raise MisuseError(f'{path}: notebooks must be a list such as ["01", "05"]')
    return tuple(f"{name:02d}" if isinstance(name, int) else name.strip() for name in names)


def _with_absolute_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {
        name: str((folder / Path(value).expanduser()).resolve())
        if name.endswith(_PATH_SUFFIXES) and isinstance(value, str) and value
        else value
        for name, value in values.items()
    }


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return (
        f"; did you mean {' or '.join(near)}?"
        if near
        else f"; there are {', '.join(sorted(known)) or 'none'}"
    )


def _yaml_problem(error: yaml.YAMLError, *, lines: bool = True) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or one_line(error)
    return f"{f' line {mark.line + 1}' if mark and lines else ''}: {problem}"
