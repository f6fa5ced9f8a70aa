"""Load a subject: a row of the table, or the user's factory."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import operator
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.npu.target import current_device, current_target, shows_values
from fusionkit.subjects.build import (
    Subject,
    build_subject,
    converting_by_assignment,
    new_fake_mode,
    seeded,
)
from fusionkit.subjects.source_paths import is_installed
from fusionkit.subjects.spec import SIZES, dtype_name
from fusionkit.subjects.table import SUBJECTS, unknown_subject

Factory = Callable[..., Any]

_PACKAGE = f"{Path(__file__).resolve().parents[1]}/"


def load_subject(
    name_or_factory: str | Factory,
    *,
    size: str = "tiny",
    dtype: str = "bfloat16",
    seed: int = 0,
    train: bool = False,
    device: str | None = None,
) -> Subject:
    """Build the subject `name_or_factory` on `device`, by default the one of this process's target.

    On target npu-dry, and for the full sizes of the table on target cpu, the tensors are fake.

    A string is a name of the table (`flux`) or `module:factory`, imported from sys.path and the working
    folder; a callable is such a factory itself. `factory(size, dtype)` returns `(nn.Module, kwargs)` or a
    `Subject(model, inputs, expected_sites=None)`; dtype is a torch.dtype, or its name where the parameter
    is annotated `str` or the factory rejects the former. It runs with the random state seeded and restored.
    Raises MisuseError, one line, for anything that cannot be built.
    """
    if size not in SIZES:
        raise MisuseError(f"unknown size '{size}'; use one of: {', '.join(SIZES)}")
    dtype = dtype_name(dtype)
    if not 0 <= seed < 2**63:
        raise MisuseError(f"seed is {seed}; use 0 to 2**63 - 1")
    device = device or current_device()
    dry = not shows_values(current_target())
    if isinstance(name_or_factory, str) and ":" not in name_or_factory:
        spec = SUBJECTS.get(name_or_factory)
        if spec is None:
            raise MisuseError(unknown_subject(name_or_factory))
        fake = new_fake_mode() if dry or (size == "full" and device == "cpu") else None
        return build_subject(spec, size=size, dtype=dtype, seed=seed, train=train, device=device, fake=fake)
    fake = new_fake_mode() if dry else None
    with _working_folder_importable():
        if isinstance(name_or_factory, str):
            name, factory = name_or_factory, _import_factory(name_or_factory)
        else:
            name, factory = _name_of(name_or_factory), name_or_factory
        raised = UserCode(f"subject '{name}': its factory raised")
        converting = converting_by_assignment() if fake else contextlib.nullcontext()
        with fake or contextlib.nullcontext(), converting, seeded(seed), torch.device(device), raised:
            built = _call(factory, size, dtype)
    subject = _as_subject(built, name)
    subject.model.train(train)
    return dataclasses.replace(subject, name=name, size=size, dtype=dtype, seed=seed, spec=None, fake=fake)


class UserCode:
    """A context for user code: an error becomes one MisuseError with type, text and place."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn an error into a MisuseError; fusionkit's own errors and interrupts pass."""
        if not isinstance(error, Exception | SystemExit) or isinstance(error, FusionKitError):
            return
        text = str(error).strip().partition("\n")[0]
        place = _last_line_of_theirs(trace)
        missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        hint = "; pip install 'fusionkit[models]'" if missing in ("diffusers", "transformers") else ""
        raise MisuseError(f"{self.what} {type(error).__name__}{text and ': '}{text}{place}{hint}") from error


def _last_line_of_theirs(trace: TracebackType | None) -> str:
    """The last line of user code in the error's traceback: " at file:line", or ""."""
    for frame in reversed(traceback.extract_tb(trace)):
        if (
            not frame.filename.startswith(_PACKAGE)
            and not frame.filename.startswith("<")
            and not is_installed(frame.filename)
        ):
            return f" at {frame.filename}:{frame.lineno}"
    return ""


def _import_factory(path: str) -> Factory:
    """The callable that `module:factory` names."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise MisuseError(
            f"subject '{path}' is not of the form module:factory; write it as mymodels.flux:build"
        )
    importlib.invalidate_caches()
    try:
        with UserCode(f"subject '{path}': importing {module_name} raised"):
            module = importlib.import_module(module_name)
    except MisuseError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{module_name}.".startswith(f"{cause.name}."):
            raise MisuseError(
                f"subject '{path}': there is no module {cause.name} on sys.path or in {os.getcwd()};"
                " set PYTHONPATH or change folder"
            ) from cause
        raise
    try:
        factory = operator.attrgetter(attribute)(module)
    except AttributeError as error:
        raise MisuseError(
            f"subject '{path}': {module_name} has no '{attribute}'; name a function of it"
        ) from error
    if not callable(factory):
        raise MisuseError(
            f"subject '{path}': '{attribute}' is a {type(factory).__name__}, not a factory;"
            " name a function factory(size, dtype)"
        )
    return factory  # type: ignore[no-any-return]


def _call(factory: Factory, size: str, dtype: str) -> Any:
    """Call `factory` with dtype as torch.dtype, or by name if it expects a string."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except ValueError:
        parameters = []
    if len(parameters) > 1 and parameters[1].annotation in (str, "str"):
        return factory(size, dtype)
    try:
        return factory(size, getattr(torch, dtype))
    except (TypeError, KeyError):
        with contextlib.suppress(TypeError, KeyError):
            return factory(size, dtype)
        raise


def _as_subject(built: Any, name: str) -> Subject:
    """Check what a factory returned."""
    form = "return (nn.Module, kwargs) or a fusionkit.subjects.build.Subject"
    if isinstance(built, tuple) and len(built) == 2:
        built = Subject(*built)
    if not isinstance(built, Subject):
        raise MisuseError(f"subject '{name}': its factory returned a {type(built).__name__}; {form}")
    if not isinstance(built.model, nn.Module):
        raise MisuseError(
            f"subject '{name}': its model is a {type(built.model).__name__}, not an nn.Module; {form}"
        )
    if not isinstance(built.inputs, Mapping | tuple):
        raise MisuseError(
            f"subject '{name}': its inputs are a {type(built.inputs).__name__};"
            " give a dict of keyword arguments or a tuple of positional ones"
        )
    _check_expected_sites(built.expected_sites, name)
    return built


def _check_expected_sites(expected: Any, name: str) -> None:
    """Refuse anything but a mapping of primitive names to counts."""
    if expected is None:
        return
    if not isinstance(expected, Mapping):
        raise MisuseError(
            f"subject '{name}': expected_sites is a {type(expected).__name__}; give a dict name -> count"
        )
    for primitive, count in expected.items():
        if (
            not isinstance(primitive, str)
            or not isinstance(count, int)
            or isinstance(count, bool)
            or count < 0
        ):
            raise MisuseError(
                f"subject '{name}': expected_sites[{primitive!r}] is {count!r}; give a count of 0 or more"
            )


def _name_of(factory: Factory) -> str:
    module = getattr(factory, "__module__", "")
    return f"{module}:{getattr(factory, '__qualname__', type(factory).__name__)}"


@contextlib.contextmanager
def _working_folder_importable() -> Iterator[None]:
    """Put the working folder on sys.path inside the block, as `python -m` does."""
    folder = os.getcwd()
    added = folder not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        yield
    finally:
        if added and folder in sys.path:
            sys.path.remove(folder)
