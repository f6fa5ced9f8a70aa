"""Subjects: a model with seeded parameters, and its inputs."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree

from fusionkit.errors import MisuseError
from fusionkit.npu.real import seeded_device
from fusionkit.npu.target import current_target
from fusionkit.subjects.draw import Draw, FormDraw, draw_parameters
from fusionkit.subjects.spec import SubjectSpec


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A model and its inputs.

    `inputs`: a tuple of positional or a mapping of keyword arguments. `expected_sites`: for a model outside the
    table, the author's count of sites per primitive. load_subject sets the other fields; `spec` is None for a model
    outside the table, `fake` is None if the tensors have values.
    """

    model: nn.Module = field(repr=False)
    inputs: tuple[Any, ...] | Mapping[str, Any] = field(repr=False)
    expected_sites: Mapping[str, int] | None = None
    name: str = ""
    size: str = "tiny"
    dtype: str = "bfloat16"
    seed: int = 0
    spec: SubjectSpec | None = None
    fake: FakeTensorMode | None = field(default=None, repr=False)

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of the model's forward."""
        return () if isinstance(self.inputs, Mapping) else tuple(self.inputs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments of the model's forward."""
        return dict(self.inputs) if isinstance(self.inputs, Mapping) else {}

    def mode(self) -> contextlib.AbstractContextManager[Any]:
        """The context for running and compiling the model: its fake mode, or a null context."""
        return contextlib.nullcontext() if self.fake is None else self.fake

    def run(self) -> list[torch.Tensor]:
        """Run one forward without gradients; returns the tensors of its output, flattened.

        Raises MisuseError if the output has no tensor.
        """
        with torch.no_grad(), self.mode():
            output = self.model(*self.args, **self.kwargs)
        tensors = [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        if not tensors:
            raise MisuseError(
                f"subject '{self.name}': its output holds no tensor ({type(output).__name__}); return tensors"
            )
        return tensors


def build_subject(
    spec: SubjectSpec,
    *,
    size: str,
    dtype: str,
    seed: int,
    train: bool = False,
    device: str = "cpu",
    fake: FakeTensorMode | None = None,
) -> Subject:
    """Build a row of the table with seeded parameters and inputs on `device`, in eval mode unless `train`.

    Under a `fake` mode no memory is allocated and no tensor has values. The global random state and the default dtype
    are restored. Nothing is downloaded. Raises MisuseError if the library that defines the model is missing or too
    old.
    """
    at = spec.at(size)
    model_class = import_class(spec.model, spec.name)
    configuration = None if spec.configuration is None else import_class(spec.configuration, spec.name)
    torch_dtype = getattr(torch, dtype)
    draw = (Draw if fake is None else FormDraw)(seed, torch_dtype, device)
    subject = partial(Subject, name=spec.name, size=size, dtype=dtype, seed=seed, spec=spec, fake=fake)
    with fake or contextlib.nullcontext():
        with seeded(seed), torch.device(device), default_dtype(torch_dtype):
            model = (
                model_class(**at.config) if configuration is None else model_class(configuration(**at.config))
            )
        draw_parameters(model, draw, requires_grad=train)
        return subject(model.train(train), spec.inputs(at.config, at.extent, draw))


def new_fake_mode() -> FakeTensorMode:
    """A fake mode: tensors have shape, dtype and device, but neither memory nor values."""
    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


@contextlib.contextmanager
def converting_by_assignment() -> Iterator[None]:
    """Inside the block, `module.to(dtype)` and similar calls assign new parameters, for factories under a fake mode.

    torch swaps the tensors of a fake parameter, which torch_npu's implementation refuses. Shared parameters and buffers
    stay shared.
    """
    original = nn.Module._apply

    def apply(module: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        del recurse
        made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for part in module.modules():
            for name, old in part._parameters.items():
                if old is not None:
                    new = made.setdefault(id(old), (old, nn.Parameter(fn(old), old.requires_grad)))[1]
                    part._parameters[name] = new  # type: ignore[assignment]
            for name, value in part._buffers.items():
                if value is not None:
                    part._buffers[name] = made.setdefault(id(value), (value, fn(value)))[1]
        return module

    nn.Module._apply = apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module._apply = original  # type: ignore[method-assign]


def import_class(path: str, subject: str) -> Any:
    """Import `package:Class`. Raises MisuseError with the command that installs the package."""
    package, _, name = path.partition(":")
    remedy = "pip install 'fusionkit[models]'"
    try:
        module = importlib.import_module(package)
        return getattr(module, name)
    except ModuleNotFoundError as error:
        raise MisuseError(
            f"subject '{subject}' needs {package}, and {error.name} is not installed: {remedy}"
        ) from error
    except (ImportError, AttributeError, RuntimeError) as error:
        version = getattr(importlib.import_module(package), "__version__", "of unknown version")
        reason = str(error).strip().partition("\n")[0]
        raise MisuseError(
            f"subject '{subject}': {package} {version} does not provide {name} ({reason}): {remedy}"
        ) from error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global random state, an NPU's included, inside the block, and restore the old state after it."""
    device = seeded_device(seed) if current_target() == "npu" else contextlib.nullcontext()
    with torch.random.fork_rng(devices=()), device:
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `dtype` the default inside the block, as the libraries' own from_pretrained does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
