from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject, build_subject, import_class
from fusionkit.subjects.draw import Draw, draw_parameters
from fusionkit.subjects.table import SUBJECTS

Load = Callable[..., Subject]
NAMES = tuple(SUBJECTS)

# Outputs whose dtype is not the subject's: MiniMax-H3's video and audio heads are float32 islands.
OUTPUTS = {"minimax-h3": ["float32", "float32"]}
# Subjects whose head is the embedding, drawn with variance one, and over how many values the head sums.
TIED = {"gemma3": 64}


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_bits_and_another_seed_does_not(name: str, subject: Load) -> None:
    first = subject(name)
    again = build_subject(SUBJECTS[name], size="tiny", dtype="bfloat16", seed=0)
    other = subject(name, seed=1)
    pairs = zip(first.model.named_parameters(), again.model.named_parameters(), strict=True)
    assert all(left[0] == right[0] and torch.equal(left[1], right[1]) for left, right in pairs)
    assert all(
        torch.equal(value, again.kwargs[key])
        for key, value in first.kwargs.items()
        if isinstance(value, torch.Tensor)
    )
    for left, right in zip(first.model.parameters(), other.model.parameters(), strict=True):
        assert not torch.equal(left, right)
    assert torch.equal(first.run()[0], again.run()[0])


@pytest.mark.parametrize("name", NAMES)
def test_lower_precision_is_the_rounding_of_the_same_draw(name: str, subject: Load) -> None:
    exact = dict(subject(name, "float32").model.named_parameters())
    for key, rounded in subject(name).model.named_parameters():
        assert exact[key].dtype is torch.float32
        assert torch.equal(exact[key].to(rounded.dtype), rounded), key
    for key, value in subject(name).kwargs.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(subject(name, "float32").kwargs[key].to(value.dtype), value), key


def neutral_parameters(model: nn.Module) -> tuple[str, ...]:
    """Names of the parameters that are all zero or all one, whose loss would not be detected."""
    named = model.named_parameters()
    return tuple(name for name, value in named if any(bool((value == one).all()) for one in (0, 1)))


@pytest.mark.parametrize("name", NAMES)
def test_no_parameter_is_near_its_neutral_value(name: str, subject: Load) -> None:
    model = subject(name).model
    assert neutral_parameters(model) == ()
    vectors = [(key, value.float()) for key, value in model.named_parameters() if value.ndim == 1]
    assert vectors
    for key, value in vectors:
        neutral = 1.0 if key.endswith("weight") else 0.0
        distance = (value - neutral).abs()
        assert distance.min() >= 0.05, key
        assert distance.max() <= 0.51, key
        assert (value > neutral).any(), key
        assert (value < neutral).any(), key
    matrices = [(key, value.float()) for key, value in model.named_parameters() if value.ndim > 1]
    assert all(value.std() > 0.01 and value.mean().abs() < value.std() for _, value in matrices)


def test_neutral_parameters_are_found() -> None:
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    assert neutral_parameters(model) == ("0.weight", "0.bias")


@pytest.mark.parametrize("name", NAMES)
def test_output_is_finite_and_of_order_one(name: str, subject: Load) -> None:
    for dtype in ("bfloat16", "float32"):
        tensors = subject(name, dtype).run()
        assert [str(tensor.dtype).removeprefix("torch.") for tensor in tensors] == OUTPUTS.get(name, [dtype])
        for tensor in tensors:
            assert tensor.isfinite().all()
            assert 0.3 < tensor.float().std() < (3 if name not in TIED else 3 * TIED[name] ** 0.5)


def test_wan_keeps_its_float32_islands(subject: Load) -> None:
    model = subject("wan").model
    kept = ("rope", "time_embedder", "scale_shift_table", "norm1", "norm2", "norm3")
    dtypes = {key: value.dtype for key, value in model.named_parameters()}
    expected = {key: torch.float32 if set(key.split(".")) & set(kept) else torch.bfloat16 for key in dtypes}
    assert dtypes == expected
    assert set(dtypes.values()) == {torch.float32, torch.bfloat16}
    assert {value.dtype for _, value in model.named_buffers()} == {torch.float32}


def test_deepseek_keeps_its_router_in_float32(subject: Load) -> None:
    model = subject("deepseek-v3").model
    islands = [key for key, value in model.named_parameters() if value.dtype is torch.float32]
    assert islands == ["model.layers.1.mlp.gate.weight"]


class _Islands(nn.Module):
    """Stands for a model class of either library."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Linear(2, 2)
        self.gate = nn.Linear(2, 2)
        self.other = nn.Linear(2, 2)
        self.gate_2 = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("library", "dtype", "kept"),
    [
        ("transformers.models.x", torch.bfloat16, {"gate", "gate_2"}),
        ("transformers.models.x", torch.float16, {"norm", "gate", "gate_2"}),
        ("diffusers.models.x", torch.bfloat16, {"norm"}),
        ("elsewhere", torch.bfloat16, set()),
    ],
)
def test_each_library_keeps_what_its_loader_keeps(library: str, dtype: torch.dtype, kept: set[str]) -> None:
    lists = {"_keep_in_fp32_modules": ["norm"], "_keep_in_fp32_modules_strict": ["gate"]}
    model = type("M", (_Islands,), {"__module__": library, **lists})().to(dtype)
    draw_parameters(model, Draw(0, dtype), requires_grad=False)
    found = {key.split(".")[0] for key, value in model.named_parameters() if value.dtype is torch.float32}
    assert found == kept


def test_tied_parameters_stay_tied() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    before = model["head"].weight
    draw_parameters(model, Draw(0, torch.float32), requires_grad=True)
    assert model["head"].weight is model["embed"].weight
    assert model["head"].weight is not before
    assert model["head"].weight.requires_grad


@given(seed=st.integers(0, 2**63 - 1), label=st.text(max_size=8), size=st.integers(1, 40))
def test_draws_depend_on_seed_and_label_only(seed: int, label: str, size: int) -> None:
    state = torch.get_rng_state()
    draw = Draw(seed, torch.bfloat16)
    first = draw.away_from(1.0, label, (size,), torch.float32)
    draw.normal("between", (3,))
    assert torch.equal(first, Draw(seed, torch.float32).away_from(1.0, label, (size,), torch.float32))
    assert ((first - 1).abs() >= 0.0599).all()
    assert ((first - 1).abs() <= 0.5001).all()
    assert not torch.equal(draw.normal(label, (16,)), Draw(seed, torch.bfloat16).normal(label + "'", (16,)))
    assert torch.equal(state, torch.get_rng_state())


def test_building_leaves_random_state_and_default_dtype_alone() -> None:
    state = torch.get_rng_state()
    build_subject(SUBJECTS["llama"], size="tiny", dtype="bfloat16", seed=3)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32


def test_eval_is_the_default_and_train_asks_for_gradients(subject: Load) -> None:
    assert not any(module.training for module in subject("llama").model.modules())
    assert not any(value.requires_grad for value in subject("llama").model.parameters())
    trained = build_subject(SUBJECTS["llama"], size="tiny", dtype="float32", seed=0, train=True)
    assert trained.model.training
    assert all(value.requires_grad for value in trained.model.parameters())
    assert not trained.run()[0].requires_grad


def test_a_full_size_model_is_built_under_a_fake_mode(subject: Load) -> None:
    subject("llama")  # the library is imported outside of the fake mode
    with FakeTensorMode(allow_non_fake_inputs=True):
        full = build_subject(SUBJECTS["llama"], size="full", dtype="bfloat16", seed=0)
    assert sum(value.numel() for value in full.model.parameters()) == 8_030_261_248
    assert full.kwargs["input_ids"].shape == (1, 2048)


class _Sum(nn.Module):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, object]:
        return {"total": x + y, "parts": [x, (y, None)], "name": "sum"}


def test_inputs_are_positional_or_keywords_and_outputs_are_flat() -> None:
    one, two = torch.ones(1), torch.full((1,), 2.0)
    by_name = Subject(_Sum(), {"x": one, "y": two})
    assert (by_name.args, by_name.kwargs) == ((), {"x": one, "y": two})
    assert [tensor.item() for tensor in by_name.run()] == [3, 1, 2]
    by_place = Subject(model=nn.Identity(), inputs=(two,), expected_sites=None)
    assert (by_place.args, by_place.kwargs) == ((two,), {})
    assert [tensor.item() for tensor in by_place.run()] == [2]


def test_an_output_without_tensors_is_refused() -> None:
    with pytest.raises(MisuseError, match="holds no tensor"):
        Subject(nn.Identity(), (3,), name="three").run()


@pytest.mark.parametrize("name", NAMES)
def test_missing_library_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = SUBJECTS[name].model.partition(":")[0]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MisuseError, match=r"needs .* not installed: pip install 'fusionkit\[models\]'"):
        build_subject(SUBJECTS[name], size="tiny", dtype="float32", seed=0)


def test_a_library_without_the_class_names_its_version() -> None:
    with pytest.raises(MisuseError, match=rf"torch {torch.__version__.partition('+')[0]}.* NoSuchModel"):
        import_class("torch:NoSuchModel", "x")
