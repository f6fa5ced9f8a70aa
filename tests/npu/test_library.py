"""The ops as the dispatcher, fake tensors and torch.compile see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from op_calls import BF16, F32, Call, calls, operator, r
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from fusionkit.npu.facade import TorchNpu
from fusionkit.npu.library import KIT_KERNELS, NPU_KERNELS
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS

CALLS = [pytest.param(call, id=f"{call[0]}-{index}") for index, call in enumerate(calls(grad=False))]
OPCHECKED = [pytest.param(call, id=f"{call[0]}-{index}") for index, call in enumerate(calls(grad=True))]
TRAINED = [
    pytest.param(call, id=f"{call[0]}-{index}")
    for index, call in enumerate(calls(grad=True))
    if any(isinstance(value, torch.Tensor) and value.requires_grad for value in call[1])
]


def test_every_schema_has_kernels_and_a_call_in_these_tests() -> None:
    assert [kernel.op for kernel in NPU_KERNELS] == list(SCHEMAS)
    assert [kernel.op for kernel in KIT_KERNELS] == list(KIT_SCHEMAS)
    assert {name for name, _, _ in calls(grad=False)} == {*SCHEMAS, *KIT_SCHEMAS}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_registered_schema_is_the_one_of_the_table(name: str) -> None:
    registered = operator(name)._schema
    assert registered == torch._C.parse_schema(f"npu::{SCHEMAS[name]}")
    assert str(registered) == str(torch._C.parse_schema(f"npu::{SCHEMAS[name]}"))
    assert [argument.name for argument in registered.arguments] == [
        part.split("=")[0].split()[-1]
        for part in SCHEMAS[name].partition("(")[2].partition(")")[0].split(", ")
        if part != "*"
    ]


@pytest.mark.parametrize("call", OPCHECKED)
def test_opcheck(call: Call) -> None:
    name, args, kwargs = call
    result = torch.library.opcheck(operator(name), args, kwargs)
    assert set(result.values()) == {"SUCCESS"}


def flat(outputs: Any) -> list[torch.Tensor]:
    """The tensors of an op's outputs, without the ints of npu_fusion_attention and a gradient that is None."""
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def faked(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return pytree.tree_map_only(torch.Tensor, convert, value)


@pytest.mark.parametrize("call", CALLS)
def test_fake_and_meta_results_look_like_the_real_ones(call: Call) -> None:
    name, args, kwargs = call
    real = flat(operator(name)(*args, **kwargs))
    with FakeTensorMode() as mode:
        fake = flat(operator(name)(*faked(args, mode.from_tensor), **faked(kwargs, mode.from_tensor)))
    meta_args, meta_kwargs = (faked(given, lambda tensor: tensor.to("meta")) for given in (args, kwargs))
    meta = flat(operator(name)(*meta_args, **meta_kwargs))
    for one, other, third in zip(real, fake, meta, strict=True):
        assert (one.shape, one.dtype, one.stride()) == (other.shape, other.dtype, other.stride())
        assert (one.shape, one.dtype, one.stride()) == (third.shape, third.dtype, third.stride())
        assert (other.device.type, third.device.type) == ("cpu", "meta")


def test_meta_shapes_are_those_of_torch_npus_meta_kernels() -> None:
    x = torch.empty(4, 2, 8, dtype=BF16, device="meta").transpose(0, 1)
    y, rstd = torch.ops.npu.npu_rms_norm(x, torch.empty(2, device="meta"))  # a wrong gamma is not refused
    assert (y.stride(), rstd.shape, rstd.dtype) == (x.stride(), (2, 4, 1), F32)
    assert torch.ops.npu.npu_swiglu(torch.empty(2, 7, device="meta")).shape == (2, 3)
    turned = torch.ops.npu.npu_rotary_mul(x, torch.empty(1, device="meta"), torch.empty(1, device="meta"))
    assert turned.is_contiguous()
    assert torch.ops.npu._npu_dtype_cast(x, F32).is_contiguous()


def targets(graph: torch.fx.Graph) -> list[Any]:
    return [
        node.target
        for node in graph.nodes
        if node.op == "call_function" and "getitem" not in str(node.target)
    ]


# To autograd, and so to whatever traces, torch_npu has this op as a call of the other.
SEEN_AS = {"npu_moe_token_unpermute": "_npu_moe_token_unpermute"}


@pytest.mark.parametrize("tracing_mode", ["fake", "symbolic"])
@pytest.mark.parametrize("call", CALLS)
def test_the_op_is_one_node_of_a_make_fx_graph(call: Call, tracing_mode: str) -> None:
    name, args, kwargs = call
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def model(*tensors: torch.Tensor) -> Any:
        given = {**dict(enumerate(leaves)), **dict(zip(places, tensors, strict=True))}
        call_args, call_kwargs = pytree.tree_unflatten([given[place] for place in range(len(leaves))], spec)
        return operator(name)(*call_args, **call_kwargs)

    graph = make_fx(model, tracing_mode=tracing_mode)(*[leaves[place] for place in places])
    assert targets(graph.graph) == [operator(SEEN_AS.get(name, name))]


def test_an_op_with_two_overloads_takes_its_group_list_as_a_tensor_or_as_ints() -> None:
    x, weight = [r(6, 4)], [r(4, 5), r(4, 5)]
    ints = torch.ops.npu.npu_grouped_matmul(x, weight, group_list=[2, 6], split_item=2)
    tensor = torch.ops.npu.npu_grouped_matmul(
        x, weight, group_list=torch.tensor([2, 6]), split_item=2, group_type=0
    )
    assert torch.equal(ints[0], tensor[0])


def test_attention_is_tagged_as_torch_npu_tags_it() -> None:
    assert torch.Tag.nondeterministic_seeded in operator("npu_fusion_attention").tags
    assert torch.Tag.nondeterministic_seeded not in operator("npu_geglu").tags


class Captured:
    def __init__(self) -> None:
        self.forward: list[Any] = []
        self.backward: list[Any] = []

    def backend(self) -> Any:
        def keep(into: list[Any]) -> Callable[..., Any]:
            def compiler(module: torch.fx.GraphModule, _inputs: Any) -> Any:
                into.extend(targets(module.graph))
                return make_boxed_func(module.forward)

            return compiler

        return aot_autograd(fw_compiler=keep(self.forward), bw_compiler=keep(self.backward))


BACKWARDS = {
    "npu_rms_norm": "npu_rms_norm_backward",
    "npu_rotary_mul": "npu_rotary_mul_backward",
    "npu_swiglu": "npu_swiglu_backward",
    "npu_gelu": "npu_gelu_backward",
    "npu_fast_gelu": "npu_fast_gelu_backward",
    "_npu_dtype_cast": "_npu_dtype_cast_backward",
    "npu_geglu": "npu_geglu_grad",
    "npu_scaled_masked_softmax": "npu_scaled_masked_softmax_backward",
    "npu_fusion_attention": "npu_fusion_attention_grad",
    "npu_moe_token_permute": "npu_moe_token_permute_grad_v2",
    "npu_moe_token_unpermute": "npu_moe_token_unpermute_grad_v2",
    "_npu_moe_token_unpermute": "npu_moe_token_unpermute_grad_v2",
}


def fresh(value: Any) -> Any:
    """A leaf of its own for autograd; a value that takes no gradient stays."""
    needs = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().clone().requires_grad_() if needs else value


@pytest.mark.parametrize("call", TRAINED)
def test_the_op_and_its_backward_are_one_node_each_of_the_compiled_graphs(call: Call) -> None:
    name, args, kwargs = call
    captured = Captured()

    def model(*xs: Any) -> Any:
        return flat(operator(name)(*xs, **kwargs))[0]

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=captured.backend(), fullgraph=True)
    leaves, expected_leaves = [fresh(a) for a in args], [fresh(a) for a in args]
    out, expected = compiled(*leaves), model(*expected_leaves)
    assert torch.equal(out, expected)
    grad = torch.ones_like(out)
    out.backward(grad)
    expected.backward(grad)
    for leaf, wanted in zip(leaves, expected_leaves, strict=True):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            assert torch.equal(leaf.grad, wanted.grad)
    assert captured.forward.count(operator(SEEN_AS.get(name, name))) == 1
    if name in BACKWARDS:
        assert captured.backward.count(operator(BACKWARDS[name])) == 1
        assert all(target.namespace == "npu" or "detach" in str(target) for target in captured.backward)


def test_the_facade_can_be_called_from_a_compiled_model(npu: TorchNpu) -> None:
    captured = Captured()

    def model(x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        normed = npu.npu_rms_norm(x, gamma, epsilon=1e-5)[0]
        result: torch.Tensor = npu.npu_swiglu(npu.npu_gelu(normed, approximate="tanh"), dim=-1)
        return result

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=captured.backend(), fullgraph=True, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5):
            x, gamma = torch.randn(rows, 8), torch.randn(8)
            assert torch.equal(compiled(x, gamma), model(x, gamma))
    names = [str(target) for target in captured.forward if getattr(target, "namespace", "") == "npu"]
    assert names == ["npu.npu_rms_norm.default", "npu.npu_gelu.default", "npu.npu_swiglu.default"]


def test_autocast_ends_at_the_op(npu: TorchNpu) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 2, 5, 16, generator=generator) for _ in range(3))
    plain = npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.25)[0]
    with torch.autocast("cpu", torch.bfloat16):
        under = npu.npu_fusion_attention(q, k, v, 2, "BNSD", scale=0.25)[0]
        assert torch.mm(q[0, 0], k[0, 0].T).dtype == torch.bfloat16  # autocast is on, before and after
    assert under.dtype == torch.float32
    assert torch.equal(plain, under)
