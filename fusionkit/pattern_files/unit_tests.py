"""The two-layer test file of a fusion: kernel layer (numbers) and pattern layer (match)."""

from __future__ import annotations

from pathlib import Path

_TEMPLATE = '''"""Two-layer test of {name}. A pass here says that the code is right, not that a model is hit."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from fusionkit import use_target
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.numeric.replay import replay_site
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.passes.registering import activations_of, argument_names, real_inputs, scalars_of
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict

use_target("cpu")
CONFIG = CompilationConfig(fusion_patterns=select_patterns(({chosen})), pattern_files=({files}))
GROUP = pattern_groups(CONFIG)["{name}"]
EPS = 1e-6


class Case:
    """A variant with inputs drawn for one seed; a scalar that is no integer stands for an eps."""

    def __init__(self, pattern, seed=0):
        self.scalars = {{n: v if isinstance(v, int) else EPS for n, v in scalars_of(pattern).items()}}
        self.names = argument_names(pattern)
        self.tensors = real_inputs(pattern, seed)
        chosen = [n for n in self.names if n not in self.scalars]
        self.activations = [i for i, n in enumerate(chosen) if n in activations_of(pattern)]
        self.search = self.of_tensors(pattern.pattern)
        self.replacement = self.of_tensors(pattern.replacement)

    def of_tensors(self, function):
        def call(*tensors):
            rest = iter(tensors)
            return function(*(self.scalars[n] if n in self.scalars else next(rest) for n in self.names))

        return call

    def replay(self, seed=0):
        parts = self.search, self.replacement, self.tensors
        return replay_site(*parts, eps=EPS, seed=seed, activations=self.activations)


variants = pytest.mark.parametrize("pattern", GROUP, ids=lambda p: p.name())


@variants
@pytest.mark.parametrize("seed", range(3))
def test_kernel_layer(pattern, seed):
    """Search function against replacement, on random values of several magnitudes."""
    replay = Case(pattern, seed).replay(seed)
    assert replay.verdict, replay.reason


@variants
@pytest.mark.parametrize("value", [0, 1, -1])
def test_edge_value(pattern, value):
    """The same with one value throughout half of the rows of the activations."""
    case = Case(pattern)
    for index in case.activations:
        rows = case.tensors[index].view(-1, case.tensors[index].shape[-1])
        rows[: (len(rows) + 1) // 2] = value
    replay = case.replay()
    if replay.verdict is Verdict.INCONCLUSIVE:  # a single row, of zeros
        pytest.skip(replay.reason)
    assert replay.verdict, replay.reason


@variants
def test_no_input_is_changed(pattern):
    case = Case(pattern)
    before = [tensor.clone() for tensor in case.tensors]
    for function in (case.search, case.replacement):
        function(*case.tensors)
        assert all(map(torch.equal, case.tensors, before))


@variants
def test_shape_dtype_and_device_are_kept(pattern):
    case = Case(pattern)
    forms = [
        [(out.shape, out.dtype, out.device) for out in tree_leaves(function(*case.tensors))]
        for function in (case.search, case.replacement)
    ]
    assert forms[0] == forms[1]
    assert forms[0]


@variants
def test_repeated_calls_are_equal(pattern):
    case = Case(pattern)
    runs = [tree_leaves(case.replacement(*case.tensors)) for _ in range(3)]
    assert all(map(torch.equal, runs[0] * 2, runs[1] + runs[2]))


@variants
def test_pattern_layer(pattern):
    """torch.compile through the backend: one match, and a second run gives the same."""
    case = Case(pattern)
    with torch.no_grad():  # the search function as a model; torch.compile cannot import a pattern file
        model = make_fx(case.search)(*case.tensors)
    subject = Subject(model=model, inputs=tuple(case.tensors), name="unit")
    compiled = compile_subject(subject, CONFIG)
    assert [m.status for m in compiled.matches if m.pattern == "{name}"] == ["hit"]
    again = compile_subject(subject, CONFIG)
    assert all(torch.equal(a, b) for a, b in zip(compiled.outcome.outputs, again.outcome.outputs, strict=True))
'''


def unit_test_text(name: str, pattern_file: Path | None, *, registered: bool) -> str:
    """Source of the test file for a pattern group: one of the kit (`registered`), or of a pattern file."""
    return _TEMPLATE.format(
        name=name,
        chosen=f'"{name}",' if registered else "",
        files="" if pattern_file is None else f"{str(pattern_file)!r},",
    )
