"""The table as a whole: what every row, and every tiny size beside its full one, has to keep."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from fusionkit.subjects.build import import_class
from fusionkit.subjects.site_counts import primitives
from fusionkit.subjects.spec import SIZES, SubjectSpec
from fusionkit.subjects.table import SUBJECTS

# Published depths, and how many parameters the full model has, in units of 1e7.
FULL = {
    "flux": ({"num_layers": 19, "num_single_layers": 38}, 1190),
    "flux2": ({"num_layers": 8, "num_single_layers": 48}, 3222),
    "qwen-image": ({"num_layers": 60}, 2043),
    "sd3": ({"num_layers": 24}, 224),
    "z-image": ({"n_layers": 30, "n_refiner_layers": 2}, 615),
    "wan": ({"num_layers": 40}, 1429),
    "hunyuan-video": ({"num_layers": 20, "num_single_layers": 40}, 1282),
    "minimax-h3": ({"num_layers": 50, "num_refiner_layers": 2}, 3312),
    "llama": ({"num_hidden_layers": 32}, 803),
    "qwen3": ({"num_hidden_layers": 36}, 819),
    "glm4": ({"num_hidden_layers": 40}, 940),
    "gemma3": ({"num_hidden_layers": 34}, 388),
    "gpt-j": ({"n_layer": 28}, 605),
    "qwen3-moe": ({"num_hidden_layers": 48}, 3053),
    "deepseek-v3": ({"num_hidden_layers": 61}, 67103),
    "gpt-oss": ({"num_hidden_layers": 24}, 2091),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_full_model_has_its_published_depth_and_size(name: str) -> None:
    depths, size = FULL[name]
    assert {key: SUBJECTS[name].at("full").config[key] for key in depths} == depths
    model = on_meta(SUBJECTS[name], SUBJECTS[name].at("full").config)
    assert round(sum(value.numel() for value in model.parameters()) / 1e7) == size


def test_the_table_has_the_sixteen_subjects() -> None:
    assert set(SUBJECTS) == set(FULL)
    assert all(spec.name == name for name, spec in SUBJECTS.items())


def on_meta(spec: SubjectSpec, config: Mapping[str, Any]) -> torch.nn.Module:
    model = import_class(spec.model, spec.name)
    with torch.device("meta"):
        if spec.configuration is None:
            return model(**config)
        return model(import_class(spec.configuration, spec.name)(**config))


@pytest.mark.parametrize("name", SUBJECTS)
def test_tiny_and_full_say_the_same_things(name: str) -> None:
    spec = SUBJECTS[name]
    tiny, full = spec.at("tiny"), spec.at("full")
    assert set(tiny.config) == set(full.config)
    assert set(tiny.extent) == set(full.extent)
    assert tiny.source != full.source
    for key, value in full.config.items():
        if not isinstance(value, int) or isinstance(value, bool):
            assert kind_of(key, tiny.config[key]) == kind_of(key, value), key


def kind_of(key: str, value: Any) -> Any:
    """What a tiny size must not change of a configuration's value: all of it, but for numbers of things."""
    if key == "rope_parameters":
        if not isinstance(value, Mapping):
            return value
        sizes = {"factor", "original_max_position_embeddings"}
        return {name: kind_of(key, item) for name, item in value.items() if name not in sizes}
    if key == "layer_types":
        return set(value)
    if key in ("axes_dims_rope", "rope_axes_dim", "axes_dims", "axes_lens"):
        return len(value)
    if key in ("dual_attention_layers", "eos_token_id"):
        return bool(value)
    return value


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_named_primitive_has_a_counter(name: str) -> None:
    assert SUBJECTS[name].primitives
    assert set(SUBJECTS[name].primitives) <= set(primitives())


Config = Mapping[str, Any]


def first(config: Config, *keys: str) -> Any:
    """The value of the first of `keys` that the configuration has, else None."""
    return next((config[key] for key in keys if config.get(key) is not None), None)


def heads(config: Config) -> int:
    return int(first(config, "num_attention_heads", "n_heads", "n_head"))


def groups(config: Config) -> int:
    """How many query heads share a key/value head."""
    kv = first(config, "num_key_value_heads", "n_kv_heads") or heads(config)
    assert heads(config) % kv == 0
    return heads(config) // kv


def head_size(config: Config) -> int:
    given = first(config, "head_dim", "attention_head_dim")
    width = first(config, "hidden_size", "dim", "n_embd")
    if given is None:
        assert width % heads(config) == 0
    return int(given or width // heads(config))


def axes(config: Config) -> tuple[int, ...]:
    """The sizes of the rotary axes; empty where there is one axis over the whole head or no rotation."""
    if "rope_freq_dim" in config:
        return (2 * config["rope_freq_dim"],) * 3
    return tuple(first(config, "axes_dims_rope", "rope_axes_dim", "axes_dims") or ())


def rotary_size(config: Config) -> int:
    """How many values of a head rotate."""
    if axes(config):
        return sum(axes(config))
    share = (config.get("rope_parameters") or {}).get("partial_rotary_factor", 1.0)
    return int(first(config, "rotary_dim", "qk_rope_head_dim") or head_size(config) * share)


def turned_head(config: Config) -> int:
    """The size of the head, or of the part of it, that the rotary function is given."""
    return int(config.get("qk_rope_head_dim") or head_size(config))


def experts(config: Config) -> int | None:
    given = first(config, "num_experts", "num_local_experts", "n_routed_experts")
    return None if given is None else int(given)


def widths(config: Config) -> list[int]:
    keys = (
        "intermediate_size",
        "moe_intermediate_size",
        "ffn_dim",
        "hidden_size",
        "dim",
        "joint_attention_dim",
    )
    return [config[key] for key in keys if key in config]


RULES: dict[str, Callable[[Config], bool]] = {
    "npu_rotary_mul: an even head size below 896": lambda c: head_size(c) % 2 == 0 and head_size(c) < 896,
    "npu_rotary_mul: an even number of values rotates": lambda c: (
        0 < rotary_size(c) <= turned_head(c) and rotary_size(c) % 2 == 0
    ),
    "each rotary axis is even": lambda c: all(axis % 2 == 0 for axis in axes(c)),
    "heads are whole groups": lambda c: groups(c) >= 1,
    "npu_swiglu and grouped products: widths are multiples of 8": lambda c: all(
        w % 8 == 0 for w in widths(c)
    ),
    "a token goes to some experts, not to all": lambda c: (
        experts(c) is None or 1 < c["num_experts_per_tok"] < experts(c)
    ),
    "experts fall into whole groups": lambda c: (
        "n_group" not in c
        or (
            experts(c) % c["n_group"] == 0
            and experts(c) // c["n_group"] >= 2
            and 1 < c["topk_group"] < c["n_group"]
        )
    ),
    "layers named by type are all there": lambda c: (
        len(c.get("layer_types", ())) in (0, c.get("num_hidden_layers"))
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_sizes_keep_the_constraints_of_ops(rule: str, size: str) -> None:
    assert [name for name, spec in SUBJECTS.items() if not RULES[rule](spec.at(size).config)] == []


TRAITS: dict[str, Callable[[Config], Any]] = {
    "key/value heads are shared": lambda c: groups(c) > 1,
    "there is more than one key/value head": lambda c: heads(c) // groups(c) > 1,
    "share of the head that rotates": lambda c: rotary_size(c) / turned_head(c),
    "number of rotary axes": lambda c: len(axes(c)),
    "all values of a head rotate by some axis": lambda c: sum(axes(c)) == turned_head(c),
    "has experts": lambda c: experts(c) is not None,
    "has dense layers among those with experts": lambda c: c.get("first_k_dense_replace", 0) > 0,
    "queries are compressed": lambda c: c.get("q_lora_rank") is not None,
}


@pytest.mark.parametrize("trait", TRAITS)
def test_a_tiny_size_has_the_traits_of_the_full_one(trait: str) -> None:
    of = TRAITS[trait]
    different = [
        name for name, spec in SUBJECTS.items() if of(spec.at("tiny").config) != of(spec.at("full").config)
    ]
    assert different == []


@pytest.mark.parametrize("size", SIZES)
def test_windows_are_shorter_than_the_input(size: str) -> None:
    windowed = [spec.at(size) for spec in SUBJECTS.values() if "sliding_window" in spec.at("full").config]
    assert windowed
    assert all(at.config["sliding_window"] < at.extent["text"] for at in windowed)


def test_table_is_read_without_torch() -> None:
    code = "import sys, fusionkit.subjects.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
