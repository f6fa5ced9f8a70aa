"""Every row of the table with a call that breaks it and one that obeys it; binding; kernels that raise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fused_op_examples import FUSED_OP_EXAMPLES, Example, t
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from fusionkit.errors import MisuseError
from fusionkit.npu.constraint_checks import sizes
from fusionkit.npu.constraints import CONSTRAINTS, Violation, require, violations
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS, bind

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


RANK9 = t(*[1] * 9)
FLOAT = "must be float16, bfloat16 or float32"
TENSOR = "must be a tensor, never None"
GAMMA_DTYPE = "must have the dtype of input, or float32 with a float16 or bfloat16 input"
TRAILING = "must have the shape of input's last dimensions"
FORM = next(row.rule for row in CONSTRAINTS if row.rule.startswith("must have a form"))
MODE = "must be 'half' or 'interleave'"
APPROXIMATE = "must be 'none' or 'tanh'"
WIDE_D = t(1, 1, 2, 896)

EXAMPLES: dict[str, Example] = {
    "npu_rms_norm": Example(
        {"input": t(2, 3, 8), "gamma": t(8), "epsilon": 1e-6},
        {
            ("input", FLOAT): [{"input": t(2, 8, dtype=F64), "gamma": t(8, dtype=F64)}],
            ("input", "must have 2 to 8 dimensions"): [
                {"input": t(8)},
                {"input": t(*[1] * 8, 8), "gamma": t(8)},
            ],
            ("gamma", TENSOR): [{"gamma": None}, {"gamma": 1.0}],
            ("gamma", GAMMA_DTYPE): [
                {"gamma": t(8, dtype=BF16)},
                {"input": t(2, 8, dtype=F16), "gamma": t(8, dtype=BF16)},
            ],
            ("gamma", TRAILING): [{"gamma": t(4)}, {"gamma": t(2)}, {"gamma": t()}, {"gamma": t(1, 2, 3, 8)}],
            ("gamma", "must not be empty"): [{"input": t(2, 0), "gamma": t(0)}],
        },
    ),
    "npu_rms_norm_backward": Example(
        {"dy": t(2, 8), "input": t(2, 8), "gamma": t(8), "rstd": t(2, 1)},
        {
            ("input", FLOAT): [{"input": t(2, 8, dtype=F64)}],
            ("dy", "must have the shape of input"): [{"dy": t(8)}],
            ("dy", "must have the dtype of input"): [{"dy": t(2, 8, dtype=F16)}],
            ("gamma", GAMMA_DTYPE): [{"gamma": t(8, dtype=F16)}],
            ("gamma", TRAILING): [{"gamma": t(4)}],
            ("rstd", "must be float32"): [{"rstd": t(2, 1, dtype=F16)}],
            ("rstd", "must have input's leading dimensions"): [{"rstd": t(3, 1)}, {"rstd": t(2, 8)}],
        },
    ),
    "npu_add_rms_norm": Example(
        {"x1": t(2, 8), "x2": t(2, 8), "gamma": t(8), "epsilon": 0.0},
        {
            ("x1", FLOAT): [{"x1": t(2, 8, dtype=F64)}],
            ("x1", "must have 1 to 8 dimensions"): [{"x1": t()}, {"x1": RANK9, "x2": RANK9, "gamma": t(1)}],
            ("x2", "must have the shape of x1"): [{"x2": t(1, 8)}],
            ("x2", "must have the dtype of x1"): [{"x2": t(2, 8, dtype=BF16)}],
            ("gamma", TENSOR): [{"gamma": None}],
            ("gamma", "must have the dtype of x1"): [
                {"x1": t(2, 8, dtype=BF16), "x2": t(2, 8, dtype=BF16), "gamma": t(8)}
            ],
            ("gamma", "must have the shape of x1's last dimensions"): [{"gamma": t(2)}],
            ("epsilon", "must be 0 or more"): [{"epsilon": -1e-6}, {"epsilon": float("nan")}],
        },
    ),
    "npu_rotary_mul": Example(
        {"input": t(2, 3, 4, 6), "r1": t(1, 1, 4, 6), "r2": t(1, 1, 4, 6), "rotary_mode": "half"},
        {
            ("input", FLOAT): [{"input": t(2, 3, 4, 6, dtype=F64)}],
            ("input", "must have 3 or 4 dimensions"): [{"input": t(4, 6), "r1": t(4, 6), "r2": t(4, 6)}],
            ("input", "must have an even head size D"): [{"input": t(1, 1, 2, 5), "r1": t(1, 1, 2, 5)}],
            ("input", "must have a head size D below 896"): [{"input": WIDE_D, "r1": WIDE_D, "r2": WIDE_D}],
            ("input", "must have B < 1000 and N < 1000 (half)"): [{"input": t(1000, 3, 4, 6)}],
            ("input", "must have B*N < 1000 (interleave)"): [
                {"input": t(40, 25, 4, 6), "rotary_mode": "interleave"}
            ],
            ("r1", FLOAT): [{"r1": t(1, 1, 4, 6, dtype=F64)}],
            ("r1", "must have the rank and the full head size D of input"): [
                {"r1": t(1, 1, 4, 3), "r2": t(1, 1, 4, 3)},
                {"r1": t(4, 6), "r2": t(4, 6)},
            ],
            ("r1", FORM): [
                {"r1": t(1, 3, 4, 6)},
                {"r1": t(1, 1, 1, 6)},
                {"r1": t(2, 1, 4, 6), "rotary_mode": "interleave"},
                {"r1": t(2, 3, 4, 6), "rotary_mode": "interleave"},
            ],
            ("r1", "must leave B*N <= 1024 where r1 or r2 needs a gradient (half)"): [
                {"input": t(41, 25, 4, 6), "r1": t(1, 1, 4, 6, grad=True)},
                {"input": t(41, 25, 4, 6), "r2": t(1, 1, 4, 6, grad=True)},
            ],
            ("r2", FLOAT): [{"r2": t(1, 1, 4, 6, dtype=F64)}],
            ("r2", "must have the shape of r1"): [{"r2": t(2, 1, 4, 6)}],
            ("rotary_mode", MODE): [{"rotary_mode": "interleaved"}, {"rotary_mode": 0}],
            ("rotate", FLOAT): [{"rotate": t(6, 6, dtype=torch.int32)}],
            ("rotate", "must be a [D, D] matrix"): [{"rotate": t(6, 4)}, {"rotate": t(1, 6, 6)}],
        },
    ),
    "npu_rotary_mul_backward": Example(
        {"grad": t(2, 3, 4, 6), "input": t(2, 3, 4, 6), "r1": t(1, 1, 4, 6), "r2": t(1, 1, 4, 6)},
        {
            ("grad", "must have the shape of input"): [{"grad": t(2, 3, 4, 3)}],
            ("r1", FORM): [{"r1": t(1, 3, 4, 6)}],
            ("r2", "must have the shape of r1"): [{"r2": t(1, 1, 4, 3)}],
            ("rotary_mode", MODE): [{"rotary_mode": "quarter"}],
        },
    ),
    "npu_swiglu": Example(
        {"input": t(2, 8)},
        {
            ("input", FLOAT): [{"input": t(2, 8, dtype=torch.int8)}],
            ("input", "must have 1 to 8 dimensions"): [{"input": t()}, {"input": t(*[2] * 9)}],
            ("dim", "must be in [-rank, rank - 1] of input"): [{"dim": 2}, {"dim": -3}],
            ("input", "must have an even size along dim"): [{"input": t(2, 7)}, {"input": t(3, 8), "dim": 0}],
            ("input", "must be contiguous"): [{"input": t(8, 2).t()}, {"input": t(2, 16)[:, :8]}],
            ("input", "must not be empty"): [{"input": t(0, 8)}],
        },
    ),
    "npu_swiglu_backward": Example(
        {"grad_output": t(2, 4), "input": t(2, 8)},
        {
            ("dim", "must be in [-rank, rank - 1] of input"): [{"dim": 2}],
            ("input", "must have an even size along dim"): [{"input": t(2, 9)}],
            ("grad_output", "must have the shape of input, halved along dim"): [{"grad_output": t(2, 8)}],
            ("grad_output", "must have the dtype of input"): [{"grad_output": t(2, 4, dtype=F16)}],
        },
    ),
    "npu_gelu": Example(
        {"input": t(), "approximate": "tanh"},
        {
            ("input", TENSOR): [{"input": None}],
            ("input", FLOAT): [{"input": t(2, dtype=F64)}],
            ("input", "must have at most 8 dimensions"): [{"input": RANK9}],
            ("approximate", APPROXIMATE): [{"approximate": "erf"}],
        },
    ),
    "npu_gelu_backward": Example(
        {"grad_output": t(2), "input": t(2)},
        {
            ("input", FLOAT): [{"input": t(2, dtype=F64)}],
            ("grad_output", "must have the shape of input"): [{"grad_output": t(1)}],
            ("approximate", APPROXIMATE): [{"approximate": "quick"}],
        },
    ),
    "npu_fast_gelu": Example(
        {"input": t(2, dtype=F16)},
        {
            ("input", TENSOR): [{"input": None}],
            ("input", FLOAT): [{"input": t(2, dtype=torch.int64)}],
            ("input", "must have at most 8 dimensions"): [{"input": RANK9}],
        },
    ),
    "npu_fast_gelu_backward": Example(
        {"grad": t(2), "input": t(2)},
        {
            ("input", FLOAT): [{"input": t(2, dtype=F64)}],
            ("grad", "must have the shape of input"): [{"grad": t(3)}],
            ("grad", "must have the dtype of input"): [{"grad": t(2, dtype=BF16)}],
        },
    ),
    "_npu_dtype_cast": Example(
        {"input": t(2, dtype=torch.int64), "dtype": F16},
        {("input", "must have at most 8 dimensions"): [{"input": RANK9}]},
    ),
    "_npu_dtype_cast_backward": Example(
        {"grad": t(2), "dtype": F16}, {("grad", "must have at most 8 dimensions"): [{"grad": RANK9}]}
    ),
    "layer_norm_scale_shift": Example(
        {"x": t(2, 3, 8), "scale": t(2, 1, 8), "shift": t(8)},
        {
            ("x", FLOAT): [{"x": t(2, 3, 8, dtype=F64)}],
            ("x", "must have 1 to 8 dimensions"): [{"x": t()}, {"x": RANK9}],
            ("scale", FLOAT): [{"scale": t(8, dtype=F64)}],
            ("scale", "must broadcast against x without enlarging it"): [
                {"scale": t(2, 8)},
                {"scale": t(1, 2, 3, 8)},
            ],
            ("shift", FLOAT): [{"shift": t(8, dtype=F64)}],
            ("shift", "must broadcast against x without enlarging it"): [{"shift": t(4)}],
        },
    ),
    **FUSED_OP_EXAMPLES,
}

ROWS = [pytest.param(row, id=f"{row.op}-{row.argument}-{row.rule[:40]}") for row in CONSTRAINTS]


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_broken_by_its_example_and_by_no_good_call(row: Any) -> None:
    example = EXAMPLES[row.op]
    broken = example.bad[row.argument, row.rule]
    assert broken
    assert row.check(bind(row.op, **example.good)) is None
    for change in broken:
        found = violations(row.op, **{**example.good, **change})
        matching = [v for v in found if (v.argument, v.rule) == (row.argument, row.rule)]
        assert len(matching) == 1, f"{change} breaks {found}"
        assert matching[0].source == row.source
        assert "\n" not in str(matching[0])


def test_no_example_is_left_over_and_every_op_has_rows() -> None:
    rows = {(row.op, row.argument, row.rule) for row in CONSTRAINTS}
    assert {(op, *key) for op, example in EXAMPLES.items() for key in example.bad} == rows
    assert {row.op for row in CONSTRAINTS} == {*SCHEMAS, *KIT_SCHEMAS}
    assert all(row.argument in bind(row.op, **EXAMPLES[row.op].good) for row in CONSTRAINTS)
    assert all(row.source for row in CONSTRAINTS)


PERMITTED: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("half", (2, 3, 4, 6), (2, 1, 4, 6)),  # BNSD: B1SD
    ("half", (2, 3, 4, 6), (2, 3, 4, 6)),  # BNSD
    ("half", (2, 3, 4, 6), (1, 3, 1, 6)),  # BSND: 1S1D
    ("half", (2, 3, 4, 6), (2, 3, 1, 6)),  # BSND: BS1D
    ("half", (2, 3, 4, 6), (2, 1, 1, 6)),  # SBND: S11D
    ("half", (5, 3, 6), (5, 1, 6)),  # TND: T1D
    ("half", (5, 3, 6), (5, 3, 6)),  # TND
    ("interleave", (2, 3, 4, 6), (1, 1, 4, 6)),
    ("interleave", (2, 3, 4, 6), (1, 3, 1, 6)),
    ("interleave", (2, 3, 4, 6), (2, 1, 1, 6)),
    ("interleave", (5, 3, 6), (5, 1, 6)),
    ("interleave", (1, 3, 4, 6), (1, 3, 1, 6)),  # a batch of one
    ("half", (999, 999, 4, 6), (1, 1, 4, 6)),
    ("interleave", (1, 2000, 10, 6), (1, 2000, 1, 6)),  # S has no limit
]


@pytest.mark.parametrize(("mode", "shape", "table"), PERMITTED)
def test_documented_rotary_forms_pass(mode: str, shape: tuple[int, ...], table: tuple[int, ...]) -> None:
    assert violations("npu_rotary_mul", t(*shape), t(*table), t(*table), mode) == []


PERMITTED_ATTENTION: list[dict[str, Any]] = [
    {"atten_mask": t(2, 4, 5, 6, dtype=torch.bool)},
    {"atten_mask": t(2, 1, 5, 6, dtype=torch.uint8), "sparse_mode": 1},
    {"atten_mask": t(1, 1, 5, 6, dtype=torch.bool)},
    {"atten_mask": t(5, 6, dtype=torch.bool), "pre_tockens": 4, "next_tockens": -2},
    {"atten_mask": t(2048, 2048, dtype=torch.bool), "sparse_mode": 3},
    {"sparse_mode": 3},  # without a mask no mode asks for one
    {"sparse_mode": 4, "pre_tockens": 2, "next_tockens": -3},
    {"pse": t(2, 4, 5, 6)},
    {"pse": t(2, 4, 1, 6)},
    {"pse": t(1, 4, 5, 6)},
    {"value": t(2, 2, 6, 4)},  # a smaller head size of value
    {"sink": t(4)},
    {"query": t(2, 5, 4, 8), "key": t(2, 6, 1, 8), "value": t(2, 6, 1, 8), "input_layout": "BSND"},
    {"query": t(5, 2, 32), "key": t(6, 2, 8), "value": t(6, 2, 4), "input_layout": "SBH"},
    {
        "query": t(5, 4, 8),
        "key": t(6, 2, 8),
        "value": t(6, 2, 8),
        "input_layout": "TND",
        "actual_seq_qlen": [2, 5],
        "actual_seq_kvlen": [4, 6],
        "atten_mask": t(3, 4, dtype=torch.bool),
        "softmax_layout": "TND",
    },
]


@pytest.mark.parametrize("change", PERMITTED_ATTENTION)
def test_documented_attention_calls_pass(change: dict[str, Any]) -> None:
    assert violations("npu_fusion_attention", **{**EXAMPLES["npu_fusion_attention"].good, **change}) == []


PERMITTED_GROUPED: list[dict[str, Any]] = [
    {"x": [t(6, 4)], "weight": [t(4, 5)] * 3, "group_list": t(3, dtype=torch.int64), "group_type": 0}
    | {"split_item": 3, "group_list_type": 1, "bias": [t(5)] * 3},
    {"x": [t(6, 4).t()], "weight": [t(6, 5)], "group_list": t(3, dtype=torch.int64), "group_type": 2}
    | {"split_item": 2},
    {"x": [t(2, 3, 4), t(1, 2, 4)], "weight": [t(4, 5), t(4, 2)], "group_type": -1},
    {"x": [t(2, 4), t(1, 4)], "weight": [t(4, 5)] * 2, "group_type": 0, "split_item": 2},
    {"x": [t(3, 4)], "weight": [t(4, 5)] * 2, "group_list": [1, 3], "split_item": 2},
    {"x": [t(3, 4)], "weight": [t(2, 5, 4).transpose(1, 2)], "group_list": t(2, dtype=torch.int64)}
    | {"split_item": 2, "group_type": 0, "output_dtype": 6},
]


@pytest.mark.parametrize("call", PERMITTED_GROUPED)
def test_documented_grouped_products_pass(call: dict[str, Any]) -> None:
    assert violations("npu_grouped_matmul", **call) == []


def test_the_missing_derivative_counts_only_where_gradients_are_recorded() -> None:
    call = {**EXAMPLES["npu_grouped_matmul"].good, "weight": [t(3, 4, 5, grad=True)]}
    (found,) = violations("npu_grouped_matmul", **call)
    assert found.value == "weight that need one"
    with torch.no_grad():  # as inside an autograd.Function
        assert violations("npu_grouped_matmul", **call) == []


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_a_float32_gamma_is_allowed_with_a_half_input_but_not_the_reverse(dtype: torch.dtype) -> None:
    assert violations("npu_rms_norm", t(2, 8, dtype=dtype), t(8)) == []
    (found,) = violations("npu_rms_norm", t(2, 8), t(8, dtype=dtype))
    assert found.value == f"{str(dtype).removeprefix('torch.')} with float32 input"


def test_positional_and_keyword_calls_bind_alike() -> None:
    odd = t(2, 7)
    assert violations("npu_swiglu", odd, -1) == violations("npu_swiglu", input=odd, dim=-1)
    assert violations("npu_swiglu", odd) == violations("npu_swiglu", odd, -1)
    assert violations("npu_swiglu", odd, 0) == []


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((t(2, 8),), {}, "argument gamma is missing"),
        ((t(2, 8), t(8), 1e-6, 1), {}, "takes 3 positional arguments, got 4"),
        ((t(2, 8), t(8)), {"eps": 1e-6}, "argument eps is unknown"),
        ((t(2, 8), t(8)), {"gamma": t(8)}, "argument gamma is given twice"),
    ],
)
def test_a_call_that_does_not_fit_the_schema_is_misuse(args: Any, kwargs: Any, text: str) -> None:
    with pytest.raises(MisuseError, match=f"npu_rms_norm: {text}"):
        violations("npu_rms_norm", *args, **kwargs)


def test_keyword_only_arguments_do_not_bind_by_position() -> None:
    with pytest.raises(MisuseError, match="npu_gelu: takes 1 positional"):
        violations("npu_gelu", t(2), "tanh")


def test_an_op_without_a_schema_here_has_no_rules() -> None:
    assert violations("npu_clipped_swiglu", t(2)) == []


def test_objects_with_a_shape_and_a_dtype_are_enough() -> None:
    @dataclass
    class Described:
        shape: tuple[int, ...]
        dtype: torch.dtype

    assert violations("npu_swiglu", Described((2, 8), F32)) == []
    assert [v.value for v in violations("npu_swiglu", Described((2, 7), F32))] == ["7 along dim -1"]


def test_symbolic_sizes_are_judged_by_the_captured_size_without_guards() -> None:
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)

    def symbolic(*shape: int) -> Any:
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(shape))
        return mode.from_tensor(torch.empty(shape), symbolic_context=context)

    x = symbolic(5, 7)
    assert all(isinstance(size, torch.SymInt) for size in x.shape)
    assert sizes(x) == (5, 7)
    assert [v.value for v in violations("npu_swiglu", x)] == ["7 along dim -1"]
    assert [v.value for v in violations("npu_swiglu", symbolic(8, 2).t())] == ["strides [1, 2] with [2, 8]"]
    assert violations("npu_rms_norm", x, symbolic(7)) == []
    assert [v.value for v in violations("npu_rms_norm", x, symbolic(5))] == ["[5] with [5, 7]"]
    assert violations("npu_rotary_mul", symbolic(2, 3, 4, 6), *[symbolic(1, 1, 4, 6)] * 2, "interleave") == []
    assert environment.guards == []


def test_an_unbacked_size_breaks_no_rule() -> None:
    environment = ShapeEnv()
    with FakeTensorMode(shape_env=environment):
        x = torch.empty(2, environment.create_unbacked_symint())
    assert sizes(x) == (2, None)
    assert violations("npu_swiglu", x) == []
    assert violations("npu_rms_norm", x, t(8)) == []
    assert environment.guards == []


def test_a_violation_is_one_line_and_plain_json() -> None:
    (found,) = violations("npu_rms_norm", t(2, 8), None)
    text = "npu_rms_norm: gamma must be a tensor, never None, got None (ops-nn docs aclnnRmsNorm)"
    assert isinstance(found, Violation)
    assert str(found) == text
    assert json.loads(json.dumps(found.to_dict()))["value"] == "None"
    with pytest.raises(MisuseError, match="gamma must be a tensor"):
        require("npu_rms_norm", t(2, 8), None)


def test_kernels_raise_the_rule_with_argument_and_value() -> None:
    with pytest.raises(
        MisuseError, match=r"npu_rms_norm: gamma must have the shape .*, got \[4\] with \[2, 8\]"
    ):
        torch.ops.npu.npu_rms_norm(torch.ones(2, 8), torch.ones(4))
    with pytest.raises(MisuseError, match=r"npu_swiglu: input must have an even size along dim, got 7"):
        torch.ops.npu.npu_swiglu(torch.ones(2, 7))
    with pytest.raises(MisuseError, match=r"npu_rotary_mul: rotary_mode must be 'half' or 'interleave'"):
        torch.ops.npu.npu_rotary_mul(*[torch.ones(1, 1, 2, 2)] * 3, "interleaved")
    with pytest.raises(MisuseError, match=r"npu_gelu: approximate must be 'none' or 'tanh', got 'erf'"):
        torch.ops.npu.npu_gelu(torch.ones(2), approximate="erf")
    with pytest.raises(MisuseError, match=r"layer_norm_scale_shift: scale must broadcast against x"):
        torch.ops.fusionkit.layer_norm_scale_shift(torch.ones(2, 3, 8), torch.ones(2, 8), torch.ones(8))
