"""Stand-ins for the packages that a MindIE-SD pattern file imports, provided during its import only.

Such a file is three packages deep (mindiesd/compilation/patterns) and imports relative to them, or from mindiesd
itself. These imports resolve to stand-in modules; a name that they do not provide becomes a placeholder that
raises on use.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target
from fusionkit.patterns.pattern_base import PatternBase

Tensor = torch.Tensor


class ForeignName:
    """Placeholder for an imported name that the kit does not provide: any use of it raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> ForeignName:
        if name.startswith("__"):
            raise AttributeError(name)
        return ForeignName(f"{self._name}.{name}")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise MisuseError naming the called name."""
        self._fail("called")

    def __bool__(self) -> NoReturn:
        """Raise MisuseError: its truth value is unknown."""
        self._fail("used as a condition")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        """Raise MisuseError: it is not a tensor."""
        for value in tree_leaves((args, kwargs or {})):
            if isinstance(value, cls):
                value._fail(f"passed to {getattr(func, '__name__', func)}")
        raise TypeError(f"{func} got a {cls.__name__}")

    def _use(self, *_: Any) -> NoReturn:
        self._fail("used as a value")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __pow__ = __rpow__ = __neg__ = __getitem__ = __iter__ = __len__ = __index__ = __int__ = __float__ = _use

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        """Raise MisuseError: it is not a class."""
        self._fail("subclassed")

    def _fail(self, how: str) -> NoReturn:
        raise MisuseError(
            f"{self._name} is {how}, but fusionkit does not provide it; it provides {', '.join(PROVIDED)};"
            " write the computation out, or install the package and use target npu"
        )


def muls_add(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """x * scale + y; x and y of one shape and dtype (MindIE-SD mindiesd/layers, tests of muls_add)."""
    return x * scale + y


def layernorm_scale_shift(
    layernorm: torch.nn.LayerNorm, x: Tensor, scale: Tensor, shift: Tensor, fused: bool = True
) -> Tensor:
    """layer_norm(x) * (1 + scale) + shift; x [B, S, D], scale and shift [B, D] or [B, 1, D].

    A layer norm that is made in a replacement has gain 1 and no shift, so only its eps counts (MindIE-SD
    mindiesd/layers/adalayernorm.py).
    """
    del fused
    if scale.dim() == 2 and x.dim() == 3:
        scale, shift = scale.unsqueeze(1), shift.unsqueeze(1)
    result: Tensor = torch.ops.fusionkit.layer_norm_scale_shift(x, scale, shift, layernorm.eps)
    return result


_ROTARY_MODES = {"rotated_half": "half", "rotated_interleaved": "interleave"}


def rotary_position_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    rotated_mode: str = "rotated_half",
    head_first: bool = False,
    fused: bool = True,
) -> Tensor:
    """x * cos + rotate(x) * sin by npu_rotary_mul; x [B, S, N, D] (MindIE-SD mindiesd/layers/rope.py)."""
    del head_first, fused
    if rotated_mode not in _ROTARY_MODES:
        raise MisuseError(
            f"rotary_position_embedding: rotated_mode {rotated_mode!r}; use {' or '.join(_ROTARY_MODES)}"
        )
    result: Tensor = torch.ops.npu.npu_rotary_mul(x, cos, sin, _ROTARY_MODES[rotated_mode])
    return result


def register_pattern_to_pass(pattern_or_patterns: object) -> None:
    """Do nothing: the loader of the file registers its ...PatternGroup lists."""
    del pattern_or_patterns


# Names that every stand-in module provides, whichever module they are imported from.
PROVIDED: dict[str, Any] = {
    "PatternBase": PatternBase,
    "muls_add": muls_add,
    "layernorm_scale_shift": layernorm_scale_shift,
    "rotary_position_embedding": rotary_position_embedding,
    "register_pattern_to_pass": register_pattern_to_pass,
    "logger": logging.getLogger("mindiesd"),
}


class _StandIn(ModuleType):
    """A module (and package) with every name: a provided object, or a placeholder."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        public = ".".join(["mindiesd", *self.__name__.split(".")[1:], name])
        return PROVIDED[name] if name in PROVIDED else ForeignName(public)


class _Loader(importlib.abc.Loader):
    """Makes a stand-in module; there is nothing to execute."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the packages above the file and mindiesd as stand-ins; a real module or package next to it is loaded as it is."""

    def __init__(self, root: str, folder: Path) -> None:
        self._root = root
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for a stand-in or a neighbouring module, None for any other module."""
        del target
        if not f"{fullname}.".startswith((f"{self._root}.", "mindiesd.")):
            return None
        if fullname.rpartition(".")[0] == f"{self._root}.{_DEPTH}":
            path = [str(self._folder)]
        beside = importlib.machinery.PathFinder.find_spec(fullname, path) if path else None
        if beside is not None and beside.loader is not None:
            return beside
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)


_DEPTH = "compilation.patterns"


@contextmanager
def foreign_surroundings(path: Path, root: str) -> Iterator[str]:
    """Yields the module name to import the file under; in the block its imports of mindiesd resolve to stand-ins.

    `root`: an unused module name. On target npu an installed mindiesd is used instead. Afterwards sys.modules
    and sys.meta_path are restored; the file keeps the objects that it imported.
    """
    real = current_target() == "npu" and importlib.util.find_spec("mindiesd") is not None
    finder = _Finder(root, path.parent)
    sys.meta_path.insert(len(sys.meta_path) if real else 0, finder)
    before = {} if real else _unload("mindiesd")
    try:
        yield f"{root}.{_DEPTH}.{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    finally:
        sys.meta_path.remove(finder)
        _unload(root)
        if not real:
            _unload("mindiesd")
            sys.modules.update(before)


def _unload(package: str) -> dict[str, ModuleType]:
    """Remove a package and its submodules from sys.modules, and return them."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}
