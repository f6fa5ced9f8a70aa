"""Find calls at which the original runs: sizes, lengths and cases, with their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.identify.proving.building import Built, build
from fusionkit.identify.proving.calling import called, one_line
from fusionkit.identify.proving.cases import LENGTHS, MANNERS, Case, cases
from fusionkit.identify.proving.recipes import call_maker
from fusionkit.identify.proving.setting import Manner, Setting
from fusionkit.identify.proving.sizes import SIZES, WANTED, Sizes
from fusionkit.identify.scan_file import Site
from fusionkit.identify.source.files import SourceFile

_GIVEN_ANYWAY = ("scaling", "position_embeddings")


@dataclass(frozen=True, slots=True)
class Planned:
    """One call at which the original runs in float32."""

    setting: Setting
    original: Built
    case: Case
    arguments: Mapping[str, Any]

    @property
    def under_autocast(self) -> bool:
        """Whether autocast is tried too: with a batch of two and of one, as ops broadcast differently then."""
        return (self.setting.batch, self.setting.length) in LENGTHS[:2]

    @property
    def unread(self) -> tuple[int, int]:
        """(rows, length): so many first rows of the last sequence see no key; gradients come from the others."""
        return self.case.rows_without_key, self.setting.length


def plan(site: Site, module: ModuleType, source: SourceFile, seed: int) -> list[Planned]:
    """Calls over the first sizes that work. Raises MisuseError with the first reason where none does."""
    planned: list[Planned] = []
    refusals: list[str] = []
    enough = 0
    for sizes in SIZES:
        lengths = LENGTHS[:1] if enough else LENGTHS  # every length at one size is enough
        found = list(_at_size(site, module, source, sizes, lengths, seed, refusals))
        planned += found
        enough += bool(found)
        if enough == WANTED:
            break
    if not planned:
        # that a file has no table class of its own says least: other ways to call were tried after that
        raise MisuseError(min(refusals, key=lambda told: "LookupError" in told, default="nothing to call"))
    return planned


def _at_size(
    site: Site,
    module: ModuleType,
    source: SourceFile,
    sizes: Sizes,
    lengths: Sequence[tuple[int, int]],
    seed: int,
    refusals: list[str],
) -> Iterator[Planned]:
    batch, length = LENGTHS[0]
    start = Setting(site, module, source, sizes, batch, length, torch.Generator().manual_seed(seed))
    try:
        original = build(module, start)
    except USER_CODE_ERRORS as error:
        refusals.append(f"the original cannot be built: {one_line(error)}")
        return
    for case in cases(site, original.parameters):
        manner = _first_manner(start, original, case, refusals)
        if manner is None:
            continue
        for batch, length in lengths:
            setting = replace(start, batch=batch, length=length, manner=manner, kept={})
            arguments = _try(setting, original, case, refusals)
            if arguments is not None:
                yield Planned(setting, original, case, arguments)


def _first_manner(start: Setting, original: Built, case: Case, refusals: list[str]) -> Manner | None:
    """How the case can be called; only rotations differ in that."""
    rotates = start.site.op == "npu_rotary_mul" and "attn" not in original.parameters
    tried = (case.manner,) if case.manner else MANNERS if rotates else MANNERS[:1]
    for manner in tried:
        setting = replace(start, manner=manner, kept={})
        arguments = _try(setting, original, case, refusals)
        if arguments is not None:
            return manner
    return None


def _try(setting: Setting, original: Built, case: Case, refusals: list[str]) -> dict[str, Any] | None:
    """The arguments if the original runs with them."""
    try:
        arguments = _arguments(setting, original, case)
        with torch.no_grad():
            result = called(original.function, arguments)
    except USER_CODE_ERRORS as error:
        refusals.append(f"the original cannot be called: {one_line(error)}")
        return None
    if setting.site.op == "npu_rotary_mul" and not _keeps_shape(arguments, result):
        refusals.append("the original cannot be called: no layout of its operands fits")
        return None
    return arguments


def _keeps_shape(arguments: Mapping[str, Any], result: Any) -> bool:
    """A rotation gives what it was given; anything else was broadcast by accident."""
    rotated = [arguments[name] for name in ("q", "k", "x", "xq", "xk", "query", "key") if name in arguments]
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return not rotated or [t.shape for t in rotated][: len(results)] == [
        getattr(t, "shape", None) for t in results
    ]


def _arguments(setting: Setting, original: Built, case: Case) -> dict[str, Any]:
    told: dict[str, Any] = {}
    names = tuple(original.parameters)
    for name, parameter in original.parameters.items():
        maker = case.given.get(name)
        if name == "attn" and original.attention is not None:
            told[name] = original.attention
        elif maker is not None:
            told[name] = maker(setting)
        elif _needed(parameter):
            found = call_maker(name, setting, names)
            if found is None:
                raise MisuseError(f"no recipe for parameter {name} of {setting.site.symbol}")
            told[name] = found(setting)
    return told


def _needed(parameter: inspect.Parameter) -> bool:
    # a default is what callers leave to the function, but scaling=None would be read from the stand-in module, and
    # models never leave out the cos and sin of a decoder layer
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return not variadic and (parameter.default is parameter.empty or parameter.name in _GIVEN_ANYWAY)
