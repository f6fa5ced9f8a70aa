from __future__ import annotations

import subprocess
import sys

import pytest

from fusionkit.subjects.counters import primitives
from fusionkit.subjects.table import SIZES, SUBJECTS

FULL_BLOCKS = {
    "flux": {"num_layers": 19, "num_single_layers": 38},
    "wan": {"num_layers": 40},
    "llama": {"num_hidden_layers": 32},
}


def test_table_has_the_subjects_and_their_published_depths() -> None:
    assert set(SUBJECTS) == set(FULL_BLOCKS)
    for name, depths in FULL_BLOCKS.items():
        assert {key: SUBJECTS[name].full.config[key] for key in depths} == depths


@pytest.mark.parametrize("name", SUBJECTS)
def test_tiny_and_full_say_the_same_things(name: str) -> None:
    spec = SUBJECTS[name]
    assert set(spec.tiny.config) == set(spec.full.config)
    assert set(spec.tiny.extent) == set(spec.full.extent)
    assert spec.tiny.source != spec.full.source


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_named_primitive_has_a_counter(name: str) -> None:
    assert SUBJECTS[name].primitives
    assert set(SUBJECTS[name].primitives) <= set(primitives())


@pytest.mark.parametrize("size", SIZES)
def test_sizes_keep_the_constraints_of_rotary_ops(size: str) -> None:
    flux = SUBJECTS["flux"].at(size).config
    assert sum(flux["axes_dims_rope"]) == flux["attention_head_dim"]
    assert all(axis % 2 == 0 for axis in flux["axes_dims_rope"])
    assert SUBJECTS["wan"].at(size).config["attention_head_dim"] % 2 == 0
    llama = SUBJECTS["llama"].at(size).config
    assert llama["hidden_size"] // llama["num_attention_heads"] % 2 == 0
    assert 1 < llama["num_key_value_heads"] < llama["num_attention_heads"]


def test_table_is_read_without_torch() -> None:
    code = "import sys, fusionkit.subjects.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
