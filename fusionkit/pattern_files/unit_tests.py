"""The two-layer test file of a fusion: kernel layer (numbers) and pattern layer (match)."""

from __future__ import annotations

from pathlib import Path

from fusionkit.pattern_files.naming import FusionNames

_TEMPLATE = '''"""Two-layer test of {name}. A pass here says that the code is right, not that a model is hit."""

import pytest
import torch

from fusionkit import use_target
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.numeric.replay import replay_site
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.passes.registering import activations_of, argument_names, real_inputs, scalars_of
from fusionkit.subjects.build import Subject

use_target("cpu")
CONFIG = CompilationConfig(fusion_patterns=select_patterns(({chosen})), pattern_files=({files}))
GROUP = pattern_groups(CONFIG)["{name}"]
EPS = 1e-6


class Search(torch.nn.Module):
    """The pattern's search function as a model of its own; its scalars stand in it as literals."""

    def __init__(self, pattern):
        super().__init__()
        self.pattern = pattern

    def forward(self, *tensors):
        given = iter(tensors)
        scalars = scalars_of(self.pattern)
        return self.pattern.pattern(*(EPS if n in scalars else next(given) for n in argument_names(self.pattern)))


@pytest.mark.parametrize("pattern", GROUP, ids=lambda p: p.name())
@pytest.mark.parametrize("seed", range(3))
def test_kernel_layer(pattern, seed):
    """Search function against replacement: values, edge values, no input written to, dtype kept."""
    names = argument_names(pattern)
    scalars = scalars_of(pattern)
    tensors = real_inputs(pattern, seed)
    chosen = [n for n in names if n not in scalars]

    def call(function, *given):
        given = iter(given)
        return function(*(EPS if n in scalars else next(given) for n in names))

    replay = replay_site(
        lambda *given: call(pattern.pattern, *given),
        lambda *given: call(pattern.replacement, *given),
        tensors,
        eps=EPS,
        seed=seed,
        activations=[i for i, n in enumerate(chosen) if n in activations_of(pattern)],
    )
    assert replay.verdict, replay.reason


@pytest.mark.parametrize("pattern", GROUP, ids=lambda p: p.name())
def test_pattern_layer(pattern):
    """torch.compile through the backend: one match, and a second run gives the same."""
    model = Search(pattern)
    subject = Subject(model=model, inputs=tuple(real_inputs(pattern, 0)), name="unit")
    compiled = compile_subject(subject, CONFIG)
    assert [m.status for m in compiled.matches if m.pattern == "{name}"] == ["hit"]
    again = compile_subject(subject, CONFIG)
    assert all(torch.equal(a, b) for a, b in zip(compiled.outcome.outputs, again.outcome.outputs, strict=True))
'''


def unit_test_text(names: FusionNames, pattern_file: Path | None, *, registered: bool) -> str:
    """Source of the test file for a fusion of the kit (`registered`) or of a pattern file."""
    return _TEMPLATE.format(
        name=names.name,
        chosen=f'"{names.name}",' if registered else "",
        files="" if pattern_file is None else f"{str(pattern_file)!r},",
    )
