from __future__ import annotations

import contextlib
import json
import operator
import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fusionkit.counters import FunctionCounter
from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject
from fusionkit.subjects.fragments import source_fragments
from fusionkit.subjects.recorder import record
from fusionkit.subjects.site_counts import ExpectedCount, count_sites, counters, expected_counts

Load = Callable[..., Subject]

EXPECTED = {
    "flux": {"rms_norm": 12, "rope": 8, "gelu": 6, "ada_layer_norm": 11},
    "flux2": {"rms_norm": 12, "rope": 8, "swiglu": 6, "ada_layer_norm": 11},
    "qwen-image": {"rms_norm": 9, "rope": 8},
    "sd3": {"rms_norm": 10, "gelu": 3},
    "z-image": {"rms_norm": 25, "swiglu": 4},
    "wan": {"rms_norm": 8, "gelu": 3},
    "hunyuan-video": {"rms_norm": 12, "rope": 8, "gelu": 6, "ada_layer_norm": 11},
    "minimax-h3": {"rms_norm": 14, "rope": 4, "swiglu": 3},
    "llama": {"rms_norm": 5, "rope": 4, "swiglu": 2},
    "qwen3": {"rms_norm": 9, "rope": 4, "swiglu": 2},
    "glm4": {"rms_norm": 9, "rope": 4, "swiglu": 2},
    "gemma3": {"rms_norm": 13, "rope": 4, "gelu": 2},
    "gpt-j": {"rope": 4, "gelu": 2},
    "qwen3-moe": {"rms_norm": 9, "rope": 4, "swiglu": 2},
    "deepseek-v3": {"rms_norm": 9, "rope": 4, "swiglu": 3},
    "gpt-oss": {"rms_norm": 5, "rope": 4},
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_sites_of_the_table(name: str, dtype: str, subject: Load) -> None:
    chosen = subject(name, dtype)
    sites = count_sites(chosen)
    assert {primitive: len(found) for primitive, found in sites.items()} == EXPECTED[name]
    modules = dict(chosen.model.named_modules())
    for primitive, found in sites.items():
        assert [site.ordinal for site in found] == list(range(len(found)))
        assert {site.primitive for site in found} == {primitive}
        for site in found:
            assert site.module in modules
            for place in (site.source, site.caller):
                file, _, line = place.rpartition(":")
                assert int(line) > 0
                assert file.startswith(("torch/", "diffusers/", "transformers/"))
    assert sites == count_sites(chosen)


def test_sites_name_module_and_line(subject: Load) -> None:
    sites = count_sites(subject("flux"))
    norms = Counter(site.module.rpartition(".")[2] for site in sites["rms_norm"])
    assert norms == {"norm_q": 4, "norm_k": 4, "norm_added_q": 2, "norm_added_k": 2}
    assert {site.source.partition(":")[0] for site in sites["rms_norm"]} == {
        "torch/nn/modules/normalization.py"
    }
    ropes = Counter(site.module for site in sites["rope"])
    blocks = ("transformer_blocks", "single_transformer_blocks")
    assert ropes == {f"{block}.{index}.attn": 2 for block in blocks for index in (0, 1)}
    assert len({site.caller for site in sites["rope"]}) == 2
    modulated = {site.module.partition(".")[0] for site in sites["ada_layer_norm"]}
    assert modulated == {*blocks, "norm_out"}
    assert len({site.source for site in sites["ada_layer_norm"]}) == 5


def test_a_subject_answers_only_for_what_its_row_covers(subject: Load) -> None:
    sites = count_sites(subject("wan"), ("rms_norm", "rope", "ada_layer_norm", "swiglu"))
    assert len(sites.pop("rms_norm")) == 8
    assert sites == {"rope": None, "ada_layer_norm": None, "swiglu": None}
    assert count_sites(subject("wan"), ()) == {}


def _hooks(model: nn.Module) -> list[tuple[str, dict[str, Any]]]:
    kinds = [key for key in vars(model) if "hook" in key]
    return [
        (path, {kind: dict(value) for kind in kinds if isinstance(value := vars(module)[kind], dict)})
        for path, module in model.named_modules()
    ]


def _bindings() -> dict[tuple[str, str], int]:
    """Every function that a counter may replace, wherever it is bound."""
    paths = [path for row in counters() if isinstance(row, FunctionCounter) for path in row.functions]
    names = {path.partition(":")[2] for path in paths}
    return {
        (name, attribute): id(operator.attrgetter(attribute)(module))
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        for attribute in names
        if attribute.partition(".")[0] in vars(module)
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_everything_is_as_before(name: str, subject: Load) -> None:
    chosen = subject(name)
    chosen.run()
    hooks, bindings, state = _hooks(chosen.model), _bindings(), torch.get_rng_state()
    tensors = {key: value.clone() for key, value in chosen.model.state_dict().items()}
    attributes = {path: set(vars(module)) for path, module in chosen.model.named_modules()}
    before = chosen.run()
    count_sites(chosen)
    assert _hooks(chosen.model) == hooks
    assert _bindings() == bindings
    assert torch.equal(torch.get_rng_state(), state)
    assert {path: set(vars(module)) for path, module in chosen.model.named_modules()} == attributes
    assert all(torch.equal(value, tensors[key]) for key, value in chosen.model.state_dict().items())
    assert torch.equal(before[0], chosen.run()[0])


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4)
        self.deep = nn.ModuleList([nn.GELU("tanh"), nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.deep[1](self.deep[0](self.norm(x)))


def test_everything_is_as_before_after_an_error() -> None:
    chosen = Subject(Failing(), (torch.ones(1, 4),))
    hooks, bindings = _hooks(chosen.model), _bindings()
    with pytest.raises(MisuseError, match="shapes cannot be multiplied"):
        count_sites(chosen)
    assert _hooks(chosen.model) == hooks
    assert _bindings() == bindings


class Recovering(nn.Module):
    """Goes on after a submodule has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = Failing()
        self.norm = nn.RMSNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            self.failing(x)
        return F.gelu(self.norm(x), approximate="tanh")


def test_a_failure_that_the_model_catches_does_not_shift_the_modules() -> None:
    sites = count_sites(Subject(Recovering(), (torch.ones(1, 4),)))
    assert [site.module for site in sites["rms_norm"]] == ["failing.norm", "norm"]
    assert [site.module for site in sites["gelu"]] == ["failing.deep.0", ""]


def test_only_layer_norms_without_affine_are_modulated() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4, elementwise_affine=False))
    rows = [row for row in counters() if row.primitive == "ada_layer_norm"]
    assert [found.module for found in record(Subject(model, (torch.ones(1, 4),)), rows)] == ["1"]


class Mixed(nn.Module):
    """Each primitive of the generic counters, once by module and once by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4)
        self.act = nn.GELU("tanh")
        self.erf = nn.GELU()
        self.bare = nn.LayerNorm(4, elementwise_affine=False)
        self.drop = nn.Dropout(0.5)
        self.batch = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.rms_norm(self.norm(x), (4,))
        x = F.gelu(self.act(x), approximate="tanh") + F.gelu(x) + self.erf(x)
        return self.batch(self.drop(self.bare(x)))


def test_generic_counters_count_nothing_twice() -> None:
    sites = count_sites(Subject(Mixed(), (torch.ones(2, 4),)))
    assert [site.module for site in sites["rms_norm"]] == ["norm", ""]
    assert [site.module for site in sites["gelu"]] == ["act", ""]
    assert sites["ada_layer_norm"] is None
    assert sites["rope"] is None
    assert sites["swiglu"] is None
    line = Mixed.forward.__code__.co_firstlineno
    assert [site.caller.rpartition(":")[2] for site in sites["rms_norm"]] == [str(line + 1)] * 2
    assert sites["rms_norm"][1].source.startswith("torch/nn/functional.py:")


def test_training_mode_leaves_statistics_and_random_state_alone() -> None:
    model = Mixed().train()
    state, mean = torch.get_rng_state(), model.batch.running_mean.clone()
    count_sites(Subject(model, (torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),)))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.batch.running_mean, mean)
    assert model.batch.num_batches_tracked == 0
    assert model.training


class HandWritten(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def test_without_a_counter_there_is_no_count() -> None:
    chosen = Subject(HandWritten(), (torch.ones(1, 4),))
    assert set(count_sites(chosen).values()) == {None}
    assert {count.expected for count in expected_counts(chosen).values()} == {None}


def test_a_declaration_speaks_where_counters_do_not() -> None:
    chosen = Subject(HandWritten(), (torch.ones(1, 4),), {"rms_norm": 1, "novel_op": 2})
    counts = expected_counts(chosen)
    assert (counts["rms_norm"].expected, counts["rms_norm"].counted) == (1, None)
    assert counts["novel_op"].expected == 2
    assert counts["gelu"].expected is None
    assert set(expected_counts(chosen, ["rms_norm"])) == {"rms_norm"}
    json.dumps([count.to_dict() for count in counts.values()])


@pytest.mark.parametrize(
    ("declared", "expected", "contradicts"), [(None, 2, False), (2, 2, False), (3, 3, False), (1, 1, True)]
)
def test_generic_counters_give_a_lower_bound(declared: int | None, expected: int, contradicts: bool) -> None:
    sites = None if declared is None else {"rms_norm": declared}
    count = expected_counts(Subject(Mixed(), (torch.ones(2, 4),), sites))["rms_norm"]
    assert (count.counted, count.expected, count.complete) == (2, expected, False)
    assert (count.contradiction is not None) is contradicts


def test_a_complete_count_is_never_replaced(subject: Load) -> None:
    count = expected_counts(subject("llama"))["rope"]
    assert (count.counted, count.expected, count.complete, count.contradiction) == (4, 4, True, None)
    other = ExpectedCount("rope", count.sites, 5, complete=True)
    assert other.expected == 4
    assert other.contradiction == "rope: expected_sites says 5, the eager run has 4"


@pytest.mark.parametrize(
    ("name", "primitive", "qualnames"),
    [
        ("flux", "rms_norm", ["torch.nn.modules.normalization.RMSNorm.forward"]),
        ("flux", "rope", ["diffusers.models.embeddings.apply_rotary_emb"]),
        (
            "flux",
            "gelu",
            ["diffusers.models.activations.GELU.gelu", "torch.nn.modules.activation.GELU.forward"],
        ),
        ("llama", "rms_norm", ["transformers.models.llama.modeling_llama.LlamaRMSNorm.forward"]),
        ("llama", "rope", ["transformers.models.llama.modeling_llama.apply_rotary_pos_emb"]),
        ("llama", "swiglu", ["transformers.models.llama.modeling_llama.LlamaMLP.forward"]),
        ("wan", "rope", []),
        ("minimax-h3", "rope", ["diffusers.models.transformers.transformer_minimax_h3._apply_rotary_emb"]),
        ("gpt-j", "gelu", ["transformers.activations.NewGELUActivation.forward"]),
        (
            "deepseek-v3",
            "swiglu",
            [
                "transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3MLP.forward",
                "transformers.integrations.moe._default_apply_gate",
            ],
        ),
    ],
)
def test_fragments_are_the_source_that_runs(
    name: str, primitive: str, qualnames: list[str], subject: Load
) -> None:
    fragments = source_fragments(subject(name), primitive)
    assert [fragment.qualname for fragment in fragments] == qualnames
    for fragment in fragments:
        assert f"def {fragment.qualname.rpartition('.')[2]}(" in fragment.text
        assert not fragment.file.startswith("/")
        assert fragment.first_line > 0
        json.dumps(fragment.to_dict())
    if fragments:
        counted = {site.module for site in count_sites(subject(name))[primitive]}
        assert {module for fragment in fragments for module in fragment.modules} == counted


def test_fragments_of_modulated_norms_are_their_callers(subject: Load) -> None:
    fragments = source_fragments(subject("flux"), "ada_layer_norm")
    assert [fragment.qualname.rpartition("models.")[2] for fragment in fragments] == [
        "normalization.AdaLayerNormZero.forward",
        "transformers.transformer_flux.FluxTransformerBlock.forward",
        "transformers.transformer_flux.FluxTransformerBlock.forward",
        "normalization.AdaLayerNormZeroSingle.forward",
        "normalization.AdaLayerNormContinuous.forward",
    ]
    for fragment in fragments:
        lines = fragment.text.splitlines()
        assert "self.norm" in lines[fragment.call_line - fragment.first_line]


def test_fragments_tell_parameters_from_inputs(subject: Load) -> None:
    (norm,) = source_fragments(subject("llama"), "rms_norm")
    assert [(source.name, source.kind, source.dtype, source.shape) for source in norm.parameters] == [
        ("self.weight", "module_parameter", "bfloat16", (64,)),
        ("hidden_states", "function_input", None, None),
    ]
    (rope,) = source_fragments(subject("llama"), "rope")
    assert {source.kind for source in rope.parameters} == {"function_input"}
    bare = Subject(nn.RMSNorm(4, elementwise_affine=False), (torch.ones(1, 4),))
    (fragment,) = source_fragments(bare, "rms_norm")
    assert ("self.weight", "absent") in [(source.name, source.kind) for source in fragment.parameters]


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * self.gain, approximate="tanh")


def test_fragments_around_a_builtin_show_the_parameters_of_their_module() -> None:
    (fragment,) = source_fragments(Subject(Gated(), (torch.ones(1, 4),)), "gelu")
    assert [(source.name, source.kind, source.shape) for source in fragment.parameters] == [
        ("self.gain", "module_parameter", (4,)),
        ("x", "function_input", None),
    ]


def test_code_without_source_gives_an_empty_text() -> None:
    space: dict[str, Any] = {"nn": nn, "F": F, "__name__": "made"}
    exec(  # noqa: S102
        "class Made(nn.Module):\n    def forward(self, x):\n        return F.gelu(x, approximate='tanh')\n",
        space,
    )
    (fragment,) = source_fragments(Subject(space["Made"](), (torch.ones(1),)), "gelu")
    assert (fragment.text, fragment.qualname, fragment.call_line) == ("", "made.Made.forward", 3)
