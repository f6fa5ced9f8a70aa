"""Replay one site: original against replacement on the site's own inputs, on random ones, and in a counterexample search.

Why several magnitudes: an eps of 1e-2 instead of 1e-6 changes rows of mean square 1 by 0.5 %, which bfloat16 does
not resolve; in rows whose mean square is near the eps the difference is large.

Why several draws: a value that a whole row shares (a norm's 1/rms) carries one rounding error. With few rows the
original may be nearly exact by chance, and twice its error is then too tight a limit for a correct replacement. So
random inputs are drawn until MIN_ROWS rows are compared. On the site's own inputs, if they have fewer rows, the
original's error is at least the worst of the mean-square-1 draws. Without this, a correct float32 RMSNorm over a
single row fails about one of twenty comparisons; with 32 rows none of 200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fusionkit.encoding import Result
from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.counterexample import Search
from fusionkit.numeric.figures import has_values
from fusionkit.numeric.judging import one_line, worst_original
from fusionkit.numeric.reference import run_float64
from fusionkit.numeric.samples import choose_activations, clone, count_draws, draw, stack, written
from fusionkit.numeric.search import search_counterexample
from fusionkit.numeric.tolerance import Tolerance
from fusionkit.verdict import Verdict, combine

DEFAULT_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class ReplayedOutput:
    """One output of one regime, its samples stacked, with the original's worst (mean, max) error on single samples."""

    expected: torch.Tensor
    actual: torch.Tensor
    reference: torch.Tensor
    original_ulps: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class RegimeReplay(Result, without=("outputs",)):
    """One replay. `mean_square`: that of the random activations, None on the site's own inputs.

    `outputs`: the compared tensors, for the evidence.
    """

    regime: str
    mean_square: float | None
    verdict: Verdict
    reason: str
    comparison: Comparison | None = None
    outputs: tuple[ReplayedOutput, ...] = field(default=(), repr=False, compare=False)

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


@dataclass(frozen=True, slots=True)
class SiteReplay(Result, schema=1):
    """All replays of one site; the verdict combines theirs and the search's, the reason is that of the deciding one."""

    name: str
    verdict: Verdict
    reason: str
    seed: int
    activations: tuple[int, ...]
    dtype_gate: str | None
    regimes: tuple[RegimeReplay, ...]
    search: Search | None = None

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Results per sample; `stopped`: verdict and reason if a sample could not be run or writes to its inputs."""

    expected: list[Any]
    references: list[Any]
    actual: list[Any]
    stopped: tuple[Verdict, str] | None = None


def replay_site(
    original: Callable[..., Any],
    replacement: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    dtype_gate: torch.dtype | None = None,
    eps: float | None = None,
    seed: int,
    activations: Sequence[int] | None = None,
    tolerance: Tolerance | None = None,
    name: str = "site",
    search: Search | None = None,
    **searching: Any,
) -> SiteReplay:
    """Call both implementations as `fn(*inputs)` in each regime and compare them with `compare_outputs`.

    inputs: the site's own tensors and literals; never written to. Regimes: "own", then random activations
    of the same shapes, dtypes and strides with mean square 1, 1e-2 and `eps` (the site's epsilon, 1e-6 if
    None or 0). activations: indexes of the inputs to be drawn; default floating tensors of two or more dims, or
    all floating tensors where none has; the others (gains, cos and sin, scale and shift, where the caller
    leaves them out) keep their values. dtype_gate: dtype whose ulp is the unit, default each output's own.
    The reference is `run_float64(original)`. Same seed, same result. Gradients are off. Then a counterexample search
    draws every argument; `searching`: its names, train and literals; `search`: that of an equal site, taken over.

    A replacement that raises, or either side writing to an input, is FAIL; an original that raises is
    INCONCLUSIVE. Raises MisuseError for an index that is no floating tensor of `inputs`.
    """
    chosen = choose_activations(inputs, activations)
    draws = count_draws([inputs[index] for index in chosen])
    compare = partial(compare_outputs, name=name, tolerance=tolerance, dtype_gate=dtype_gate)
    drawn, known = [], None
    for offset, mean_square in enumerate((1.0, 1e-2, eps or DEFAULT_EPS) if chosen else ()):
        generator = torch.Generator().manual_seed(3 * seed + offset)
        samples = [draw(inputs, chosen, mean_square, generator) for _ in range(draws)]
        runs = _run(original, replacement, samples)
        drawn.append(_judge(compare, runs, f"mean_square={mean_square:g}", mean_square))
        if draws > 1 and known is None:
            known = _original_ulps(compare, runs)
    regimes = (_judge(compare, _run(original, replacement, [inputs]), "own", None, known), *drawn)
    if search is None and all(regime.comparison is not None for regime in regimes):
        search = search_counterexample(original, replacement, inputs, seed=seed, compare=compare, **searching)
    verdict, reason = _overall(regimes, search)
    gate = None if dtype_gate is None else str(dtype_gate)
    return SiteReplay(name, verdict, reason, seed, chosen, gate, regimes, search)


def _overall(regimes: Sequence[RegimeReplay], search: Search | None) -> tuple[Verdict, str]:
    """The counterexample decides where there is one, else the first regime with the combined verdict."""
    verdicts = [regime.verdict for regime in regimes]
    if search is not None:
        verdicts.append(search.verdict)
    verdict = combine(verdicts)
    if search is not None and search.verdict is verdict:
        passed = f"{len(regimes)} sets of inputs pass; " if verdict else ""
        return verdict, passed + search.reason
    deciding = next(regime for regime in regimes if regime.verdict is verdict)
    return verdict, f"{deciding.regime}: {deciding.reason}"


@torch.no_grad()
def _run(
    original: Callable[..., Any], replacement: Callable[..., Any], samples: Sequence[Sequence[Any]]
) -> _Runs:
    """Run the original, its float64 reference and the replacement on every sample, up to the first failure."""
    runs = _Runs([], [], [])
    for inputs in samples:
        if not all(has_values(value) for value in inputs if isinstance(value, torch.Tensor)):
            return replace(runs, stopped=(Verdict.INCONCLUSIVE, "fake or meta inputs carry no values"))
        try:
            expected, original_writes = _call(original, inputs)
            reference = run_float64(original, [clone(value) for value in inputs])
        except USER_CODE_ERRORS as error:
            return replace(runs, stopped=(Verdict.INCONCLUSIVE, f"the original raised {one_line(error)}"))
        try:
            actual, replacement_writes = _call(replacement, inputs)
        except USER_CODE_ERRORS as error:
            return replace(runs, stopped=(Verdict.FAIL, f"the replacement raised {one_line(error)}"))
        for side, writes in (("original", original_writes), ("replacement", replacement_writes)):
            if writes:
                return replace(runs, stopped=(Verdict.FAIL, f"the {side} writes to its inputs {writes}"))
        runs.expected.append(expected)
        runs.references.append(reference)
        runs.actual.append(actual)
    return runs


def _judge(
    compare: Callable[..., Comparison],
    runs: _Runs,
    regime: str,
    mean_square: float | None,
    original_ulps: Mapping[str, tuple[float, float]] | None = None,
) -> RegimeReplay:
    """Compare the stacked results of all samples."""
    if runs.stopped is not None:
        return RegimeReplay(regime, mean_square, *runs.stopped)
    stacked = (stack(runs.expected), stack(runs.actual), stack(runs.references))
    comparison = compare(stacked[0], stacked[1], reference=stacked[2], original_ulps=original_ulps)
    outputs = _replayed(stacked, comparison, original_ulps or {})
    return RegimeReplay(regime, mean_square, comparison.verdict, comparison.reason, comparison, outputs)


def _replayed(
    stacked: tuple[Any, Any, Any], comparison: Comparison, known: Mapping[str, tuple[float, float]]
) -> tuple[ReplayedOutput, ...]:
    """The compared tensors, one entry per output; none where the two sides have different structures."""
    leaves = [[leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)] for tree in stacked]
    names = [output.name for output in comparison.outputs or (comparison,)]
    if not len(names) == len(leaves[0]) == len(leaves[1]) == len(leaves[2]):
        return ()
    return tuple(
        ReplayedOutput(expected, actual, reference, known.get(name))
        for name, expected, actual, reference in zip(names, *leaves, strict=True)
    )


def _original_ulps(compare: Callable[..., Comparison], runs: _Runs) -> dict[str, tuple[float, float]]:
    """Largest mean and max error that the original shows in any one sample, by output name."""
    pairs = zip(runs.expected, runs.references, strict=True)
    return worst_original(compare(expected, expected, reference=reference) for expected, reference in pairs)


def _call(fn: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Any, list[int]]:
    """The result of `fn` on copies of `inputs`, and the indexes of the copies that it writes to."""
    copies = [clone(value) for value in inputs]
    result = fn(*copies)
    pairs = zip(inputs, copies, strict=True)
    return result, [index for index, (before, after) in enumerate(pairs) if written(before, after)]
