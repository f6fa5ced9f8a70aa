"""Find calls at which the original runs: sizes, lengths and cases, with their arguments."""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from fusionkit.errors import USER_CODE_ERRORS, MisuseError
from fusionkit.identify.proving.building import Built, build
from fusionkit.identify.proving.calling import called, leaves, one_line, same_outcome
from fusionkit.identify.proving.cases import LENGTHS, MANNERS, Case, cases
from fusionkit.identify.proving.guesses import AMBIGUOUS, call_guesses
from fusionkit.identify.proving.recipes import Maker, call_maker
from fusionkit.identify.proving.setting import Setting
from fusionkit.identify.proving.sizes import SIZES, WANTED, Sizes
from fusionkit.identify.scan_file import Site, place_lines
from fusionkit.identify.source.files import SourceFile

_GIVEN_ANYWAY = ("scaling", "position_embeddings")

_MASKS = 4  # masks for each parameter: so many kinds, shapes and patterns are enough
_TAKE_EITHER = ("scaled_dot_product_attention(", "dispatch_attention_fn(")


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
    def guessed(self) -> tuple[str, ...]:
        """Arguments that no recipe knows. A run in which one differs accuses nobody: no model may call it so."""
        names = tuple(self.original.parameters)
        return tuple(name for name in self.setting.guessed if call_maker(name, self.setting, names) is None)

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
    kinds: dict[str, str] = {}
    masked: Counter[str] = Counter()
    for case in cases(site, original.parameters, either_mask=_hands_on(site, source)):
        if case.masked and (kinds.get(case.masked, case.kind) != case.kind or masked[case.masked] == _MASKS):
            continue
        way = _first_way(start, original, case, refusals)
        if way is None:
            continue
        if case.masked:
            kinds[case.masked] = case.kind
            masked[case.masked] += 1
        if case.row_scales and len(lengths) == 1:
            continue
        for batch, length in lengths[:1] if case.row_scales else lengths:
            setting = replace(way, batch=batch, length=length, kept={})
            arguments = _try(setting, original, case, refusals)
            if arguments is not None:
                yield Planned(setting, original, case, arguments)


def _hands_on(site: Site, source: SourceFile) -> bool:
    """Whether the attention is a call of a function that takes boolean and float masks."""
    return any(word in line for line in place_lines(site, source) for word in _TAKE_EITHER)


def _first_way(start: Setting, original: Built, case: Case, refusals: list[str]) -> Setting | None:
    """How the case can be called: the manner, in which only rotations differ, and what unknown parameters are given."""
    rotates = start.site.op == "npu_rotary_mul" and "attn" not in original.parameters
    tried = (case.manner,) if case.manner else MANNERS if rotates else MANNERS[:1]
    names = tuple(original.parameters)
    unknown: dict[str, Maker | None] = dict.fromkeys(_unknown(start, original, case))
    if rotates:
        unknown |= {name: call_maker(name, start, names) for name in names if name in AMBIGUOUS}
    shares = (2, 1) if "rope_partial" in start.site.hazards else (1,)
    for manner, share in itertools.product(tried, shares):
        for guessed in call_guesses(unknown, original.parameters):
            setting = replace(start, manner=manner, kept={}, guessed=guessed, rotated_share=share)
            if _try(setting, original, case, refusals) is not None:
                return setting
    untold = [name for name, known in unknown.items() if known is None]
    if untold:
        told = f"no recipe for parameter {untold[0]} of {start.site.symbol}, and no usual shape fits it"
        refusals.insert(0, told)
    return None


def _unknown(setting: Setting, original: Built, case: Case) -> list[str]:
    """Parameters that have to be given and that no recipe knows."""
    names = tuple(original.parameters)
    return [
        name
        for name, parameter in original.parameters.items()
        if _needed(parameter)
        and name not in case.given
        and not (name == "attn" and original.attention is not None)
        and call_maker(name, setting, names) is None
    ]


def _try(setting: Setting, original: Built, case: Case, refusals: list[str]) -> dict[str, Any] | None:
    """The arguments if the original runs with them."""
    try:
        arguments = _arguments(setting, original, case)
        with torch.no_grad():
            torch.manual_seed(0)
            result = called(original.function, arguments)
            torch.manual_seed(1)
            again = called(original.function, arguments)
    except USER_CODE_ERRORS as error:
        refusals.append(f"the original cannot be called: {one_line(error)}")
        return None
    if not same_outcome(leaves(result), leaves(again)):
        refusals.append("the original gives other numbers each time: what is random cannot be compared")
        return None
    if any(
        isinstance(value, torch.Tensor) and bool(value.isnan().any()) for value in leaves(result).values()
    ):
        refusals.append(f"the original gives NaN (case {case.name})")
        return None
    if setting.site.op == "npu_rotary_mul" and not _keeps_shape(arguments, result):
        refusals.append("the original cannot be called: no layout of its operands fits")
        return None
    return arguments


def _keeps_shape(arguments: Mapping[str, Any], result: Any) -> bool:
    """A rotation gives what it was given; anything else was broadcast by accident."""
    rotated = [arguments[name] for name in ("q", "k", "x", "xq", "xk", "query", "key") if name in arguments]
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    # a value that is handed through may follow them
    return all(
        one.shape == getattr(other, "shape", None) for one, other in zip(rotated, results, strict=False)
    )


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
            found = setting.guessed.get(name) or call_maker(name, setting, names)
            if found is None:
                raise MisuseError(f"no recipe for parameter {name} of {setting.site.symbol}")
            told[name] = found(setting)
    return (
        {name: _by_rows(value, case.row_scales) for name, value in told.items()} if case.row_scales else told
    )


def _by_rows(value: Any, scales: Sequence[float]) -> Any:
    """A floating tensor of two or more dims with its rows times the scales, in turn; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() < 2:
        return value
    rows = value.reshape(-1, value.shape[-1])
    factors = torch.tensor(scales, dtype=value.dtype)[torch.arange(len(rows)) % len(scales)]
    return (rows * factors[:, None]).reshape(value.shape)


def _needed(parameter: inspect.Parameter) -> bool:
    # a default is what callers leave to the function, but scaling=None would be read from the stand-in module, and
    # models never leave out the cos and sin of a decoder layer
    variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return not variadic and (parameter.default is parameter.empty or parameter.name in _GIVEN_ANYWAY)
