from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fusionkit.errors import MisuseError
from fusionkit.numeric.reference import LIFTED, Float64Lift, float64_module, run_float64


class LowerPrecisionRecord(TorchDispatchMode):
    """Names of the operators that made a tensor of lower precision."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) and leaf.dtype in LIFTED for leaf in tree_leaves(result)):
            self.made.append(str(func))
        return result


@pytest.fixture(scope="module")
def cast_ops() -> Iterator[None]:
    """npu::_npu_dtype_cast as torch_npu declares it, unless something has declared it already."""
    library = None
    if not hasattr(torch.ops.npu, "_npu_dtype_cast"):
        library = torch.library.Library("npu", "FRAGMENT")
        library.define("_npu_dtype_cast(Tensor self, ScalarType dtype) -> Tensor")
        library.impl("_npu_dtype_cast", lambda x, dtype: x.to(dtype), "CompositeExplicitAutograd")
    yield
    if library is not None:
        library._destroy()


ATEN = torch.ops.aten
LOWER = (torch.float32, torch.bfloat16, torch.float16)
CASTS: dict[str, Callable[[Tensor, torch.dtype], Any]] = {
    "method": lambda x, d: x.to(d),
    "float": lambda x, d: x.float() + x.half() + x.bfloat16(),
    "to_copy": lambda x, d: ATEN._to_copy.default(x, dtype=d),
    "prims_positional": lambda x, d: torch.ops.prims.convert_element_type.default(x, d),
    "prims_keyword": lambda x, d: torch.ops.prims.convert_element_type.default(a=x, dtype=d),
    "npu": lambda x, d: torch.ops.npu._npu_dtype_cast(x, d),
    "npu_keyword": lambda x, d: torch.ops.npu._npu_dtype_cast(x, dtype=d),
    "mean": lambda x, d: x.mean(-1, dtype=d),
    "sum": lambda x, d: ATEN.sum.dim_IntList(x, [1], False, dtype=d),
    "softmax": lambda x, d: torch.softmax(x, -1, dtype=d),
    "cumsum": lambda x, d: torch.cumsum(x, 0, dtype=d),
    "norm": lambda x, d: torch.linalg.vector_norm(x, dtype=d),
    "like": lambda x, d: torch.ones_like(x, dtype=d) * torch.full_like(x, 0.1, dtype=d),
    "new": lambda x, d: x.new_full((2,), 0.1, dtype=d),
    "type_as": lambda x, d: x.type_as(torch.zeros(1, dtype=d)),
    "factories": lambda x, d: [
        torch.arange(0, 1, 0.1, dtype=d),
        torch.zeros(2, dtype=d),
        torch.ones(2, dtype=d),
        torch.full((2,), 0.1, dtype=d),
        torch.linspace(0, 1, 7, dtype=d),
        torch.eye(2, dtype=d),
        torch.empty(2, dtype=d),
        torch.tensor([0.1], dtype=d),
        torch.as_tensor(0.1, dtype=d),
    ],
    "default_dtype": lambda x, d: [
        torch.arange(0, 1, 0.1),
        torch.zeros(2),
        torch.full((2,), 0.1),
        torch.tensor(0.1),
        torch.arange(3) / 3,
        torch.arange(3) * 0.1,
        10000.0 ** (torch.arange(3) / 3),
        torch.arange(3).sqrt(),
        torch.where(x > 0, 0.1, 0.2),
        (x > 0) * 0.1,
    ],
    "autocast": lambda x, d: F.linear(x, x),
    "constant": lambda x, d: x @ torch.ones(4, 4, dtype=d),
    "random": lambda x, d: torch.rand(3, dtype=d),
    "complex": lambda x, d: torch.polar(torch.ones(2), torch.ones(2)).to(torch.complex64),
}


@pytest.mark.parametrize("dtype", LOWER, ids=str)
@pytest.mark.parametrize("case", CASTS)
@pytest.mark.usefixtures("cast_ops")
def test_no_tensor_of_lower_precision_is_made(case: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    record = LowerPrecisionRecord()
    with record, torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "autocast"), Float64Lift():
        results = tree_leaves(CASTS[case](x, dtype))
    assert results
    assert all(result.dtype in (torch.float64, torch.complex128) for result in results)
    # other random numbers would be drawn in float64, so this one is drawn first and lifted then
    assert record.made == (["aten.rand.default"] if case == "random" else [])


def test_values_are_those_of_float64() -> None:
    with Float64Lift():
        literals = [
            torch.tensor(0.1),
            torch.tensor([0.1], dtype=torch.bfloat16),
            torch.full((), 0.1),
            torch.as_tensor(0.1),
        ]
        third = torch.arange(3) / 3
        steps = torch.arange(0, 1, 0.1)
    assert [float(literal) for literal in literals] == [0.1] * 4
    assert torch.equal(third, torch.arange(3, dtype=torch.float64) / 3)
    assert torch.equal(steps, torch.arange(0, 1, 0.1, dtype=torch.float64))


def test_integers_booleans_and_eight_bit_floats_stay() -> None:
    with Float64Lift():
        assert torch.tensor([1, 2]).dtype is torch.int64
        assert torch.arange(3).dtype is torch.int64
        assert torch.ones(2).to(torch.int32).dtype is torch.int32
        assert (torch.ones(2) > 0).dtype is torch.bool
        assert torch.ones(2).to(torch.float8_e4m3fn).dtype is torch.float8_e4m3fn


def test_random_factories_draw_the_numbers_of_the_original() -> None:
    torch.manual_seed(3)
    expected = torch.randn(4)
    torch.manual_seed(3)
    assert torch.equal(run_float64(lambda: torch.randn(4)), expected.double())


def test_constants_from_outside_are_lifted_and_left_alone() -> None:
    weight = torch.rand(4, 4, dtype=torch.bfloat16)
    buffer = torch.zeros(4)
    before = weight.clone()

    def run(x: Tensor) -> Tensor:
        buffer.add_(x.sum(0))
        view = weight.t()
        view.mul_(2)
        return x @ weight + buffer

    x = torch.rand(3, 4)
    expected = x.double() @ (2 * weight.double()) + x.double().sum(0)
    assert torch.equal(run_float64(run, [x]), expected)
    assert torch.equal(weight, before)
    assert torch.equal(buffer, torch.zeros(4))


def test_a_constant_handed_through_is_lifted() -> None:
    weight = torch.ones(2)
    assert run_float64(lambda: {"weight": weight, "n": 3})["weight"].dtype is torch.float64


def test_inputs_are_converted_in_trees_and_keywords_and_not_written() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)

    def run(pair: dict[str, list[Tensor]], *, index: Tensor, other: Tensor) -> Tensor:
        assert pair["x"][0].dtype is other.dtype is torch.float64
        assert index.dtype is torch.int64
        return pair["x"][0].add_(other)[index]

    result = run_float64(run, [{"x": [x]}], {"index": torch.tensor([0]), "other": torch.ones(2)})
    assert result.tolist() == [2.0]
    assert x.tolist() == [1.0, 1.0]


def test_gradients_flow_in_float64() -> None:
    x = torch.tensor([0.3, 0.7], requires_grad=True)
    result = run_float64(lambda t: (t.float() ** 3).sum(), [x])
    assert result.dtype is torch.float64
    (grad,) = torch.autograd.grad(result, x)
    assert torch.allclose(grad, 3 * x.detach() ** 2)


@pytest.mark.parametrize("call", ["function", "module", "fused"])
def test_rms_norm_keeps_the_default_eps_of_lower_dtypes(call: str) -> None:
    x = torch.full((2, 4), 1e-4)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "function": lambda t: F.rms_norm(t, (4,)),
        "module": torch.nn.RMSNorm(4, elementwise_affine=False),
        "fused": lambda t: ATEN._fused_rms_norm.default(t, [4], None, None)[0],
    }
    eps = torch.finfo(torch.float32).eps
    expected = x.double() / (x.double() ** 2 + eps).sqrt()
    assert torch.allclose(run_float64(calls[call], [x]), expected, rtol=1e-12)
    assert torch.allclose(calls[call](x).double(), expected, rtol=1e-5)


def test_explicit_eps_of_rms_norm_is_kept() -> None:
    x = torch.full((2, 4), 1e-2)
    for call in (lambda t: F.rms_norm(t, (4,), None, 1e-3), lambda t: F.rms_norm(t, (4,), eps=1e-3)):
        expected = x.double() / (x.double() ** 2 + 1e-3).sqrt()
        assert torch.allclose(run_float64(call, [x]), expected, rtol=1e-12)


@pytest.mark.parametrize("view", [lambda x: x.view(torch.int32), lambda x: x.int().view(torch.float32)])
def test_reinterpreted_bits_are_refused(view: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(MisuseError, match="reinterprets bits"):
        run_float64(view, [torch.ones(2)])


def test_graph_module_with_frozen_constants_and_literal_dtypes() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    weight = graph.get_attr("weight")
    up = graph.call_function(ATEN._to_copy.default, (x,), {"dtype": torch.float32})
    scaled = graph.call_function(ATEN.mul.Tensor, (up, weight))
    down = graph.call_function(torch.ops.prims.convert_element_type.default, (scaled, torch.bfloat16))
    graph.output((down,))
    root = torch.nn.Module()
    root.register_buffer("weight", torch.full((2,), 1.1, dtype=torch.bfloat16))
    module = torch.fx.GraphModule(root, graph)
    value = torch.tensor([0.1, 0.7], dtype=torch.bfloat16)
    (result,) = run_float64(module, [value])
    assert torch.equal(result, value.double() * root.weight.double())


def test_the_mode_ends_with_its_block() -> None:
    with pytest.raises(RuntimeError, match="inside"), Float64Lift():
        raise RuntimeError("inside")
    assert torch.zeros(1).dtype is torch.float32
    assert torch.tensor(0.1).dtype is torch.float32


@pytest.fixture(scope="module")
def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    """A tiny Llama with random weights away from their neutral values, and its inputs."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        ids = torch.randint(0, 64, (2, 12))
    return model, {"input_ids": ids, "use_cache": False}


def test_double_alone_is_no_float64_reference_and_the_lifted_module_is(llama: Any) -> None:
    model, inputs = llama
    record, lifted_record = LowerPrecisionRecord(), LowerPrecisionRecord()
    with torch.no_grad():
        single = model(**inputs).logits
        reference = float64_module(model)
        with lifted_record:
            lifted = reference(**inputs).logits
        model.double()
        with record:
            double = model(**inputs).logits
        model.float()
    assert lifted.dtype is double.dtype is torch.float64
    assert lifted_record.made == []
    assert "aten._to_copy.default" in record.made
    scale = lifted.abs().max()
    float32_error = ((single - lifted).abs().max() / scale).item()
    double_error = ((double - lifted).abs().max() / scale).item()
    assert 1e-9 < double_error < 1e-5
    assert double_error > float32_error / 20


def test_float64_module_leaves_the_module_alone(llama: Any) -> None:
    model, inputs = llama
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        float64_module(model)(**inputs)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype is torch.float32
