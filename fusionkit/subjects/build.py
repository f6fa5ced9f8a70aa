"""A subject: a model with seeded parameters and the inputs it is investigated with."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from fusionkit.errors import MisuseError
from fusionkit.subjects.draw import Draw, draw_parameters
from fusionkit.subjects.table import SubjectSpec

DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A model and the inputs it is run with.

    `inputs`: a tuple of positional or a mapping of keyword arguments. `expected_sites`: for a model outside
    the table, how many sites of each primitive its author counted. The other fields are filled in by
    load_subject; `spec` is None for a model outside the table.
    """

    model: nn.Module = field(repr=False)
    inputs: tuple[Any, ...] | Mapping[str, Any] = field(repr=False)
    expected_sites: Mapping[str, int] | None = None
    name: str = ""
    size: str = "tiny"
    dtype: str = "bfloat16"
    seed: int = 0
    spec: SubjectSpec | None = None

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments of the model's forward."""
        return () if isinstance(self.inputs, Mapping) else tuple(self.inputs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments of the model's forward."""
        return dict(self.inputs) if isinstance(self.inputs, Mapping) else {}

    def run(self) -> list[torch.Tensor]:
        """One plain forward without gradients; the tensors of its output, flat.

        Raises MisuseError when the output holds no tensor.
        """
        with torch.no_grad():
            output = self.model(*self.args, **self.kwargs)
        tensors = [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        if not tensors:
            raise MisuseError(
                f"subject '{self.name}': its output holds no tensor ({type(output).__name__}); return tensors"
            )
        return tensors


def build_subject(
    spec: SubjectSpec, *, size: str, dtype: str, seed: int, train: bool = False, device: str = "cpu"
) -> Subject:
    """Build a row of the table with seeded parameters and inputs on `device`, in eval mode unless `train`.

    The global random state and the default dtype are left as they were. Nothing is fetched.
    Raises MisuseError when the library that defines the model is missing or too old.
    """
    at = spec.at(size)
    model_class = import_class(spec.model, spec.name)
    torch_dtype = DTYPES[dtype]
    with seeded(seed), torch.device(device), _default_dtype(torch_dtype):
        if spec.configuration is None:
            model = model_class(**at.config)
        else:
            model = model_class(import_class(spec.configuration, spec.name)(**at.config))
    draw = Draw(seed, torch_dtype, device)
    draw_parameters(model, draw, requires_grad=train)
    inputs = spec.inputs(at.config, at.extent, draw)
    return Subject(model.train(train), inputs, name=spec.name, size=size, dtype=dtype, seed=seed, spec=spec)


def import_class(path: str, subject: str) -> Any:
    """Import `package:Class`. Raises MisuseError with the way to install the package."""
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
    """Seed the CPU's global random state inside the block, and put the old state back after it."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Make `dtype` the default inside the block, as the libraries' own from_pretrained does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
