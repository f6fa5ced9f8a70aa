from __future__ import annotations

import re

import pytest
from made_profiles import cpu, record

from fusionkit.fusions import FUSIONS
from fusionkit.profile.families import (
    FAMILY_RULES,
    family_of,
    fused_ops,
    is_kernel,
    launch_name,
    op_type_of_name,
    stem,
)
from fusionkit.profile.op_traits import CPU_OP_TYPES, cpu_op_type

FUSED_OPS = [op for row in FUSIONS for op in row.ops]


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("RmsNorm", "norm"),
        ("RmsNormGrad", "norm"),
        ("AddRmsNorm", "norm"),
        ("LayerNormV3", "norm"),
        ("AdaLayerNorm", "norm"),
        ("LayerNormScaleShift", "norm"),
        ("LpNormV2", "reduction"),
        ("RotaryPositionEmbedding", "rotary"),
        ("RotaryMul", "rotary"),
        ("Swish", "activation"),
        ("SwiGlu", "activation"),
        ("FastGeluV2", "activation"),
        ("FlashAttentionScoreGrad", "attention"),
        ("ScaledMaskedSoftmax", "attention"),
        ("MatMulV3", "matmul"),
        ("BatchMatMulV2", "matmul"),
        ("GroupedMatmul", "matmul"),
        ("Conv2DBackpropFilter", "matmul"),
        ("TensorMove", "copy"),
        ("StridedSliceD", "copy"),
        ("ConcatD", "copy"),
        ("Cast", "cast"),
        ("Muls", "elementwise"),
        ("Pows", "elementwise"),
        ("Rsqrt", "elementwise"),
        ("GreaterEqual", "elementwise"),
        ("ReduceMean", "reduction"),
        ("SoftmaxV2", "reduction"),
        ("hcom_allReduce_", "communication"),
        ("GatherV2", "other"),
        ("mm_swiglu_mxquant", "other"),
    ],
)
def test_family_of_a_type(kind: str, family: str) -> None:
    assert family_of(kind) == family


def test_the_core_makes_communication() -> None:
    assert family_of("Whatever", "HCCL") == family_of("Whatever", "COMMUNICATION") == "communication"


def test_every_row_of_the_tables_has_a_source() -> None:
    assert all(row.source for row in (*FAMILY_RULES, *FUSED_OPS))
    assert all(source for _, _, source in CPU_OP_TYPES)


def test_every_fused_kernel_and_cpu_type_has_a_family() -> None:
    known_other = {"GatherV2", "ZerosLike", "Fill", "Range"}
    types = {kind for op in FUSED_OPS for kind in op.every_type} | {kind for _, kind, _ in CPU_OP_TYPES}
    assert {kind for kind in types if family_of(kind) == "other"} == known_other


def test_the_cpu_type_of_a_fused_op_is_the_first_of_its_row() -> None:
    assert all(cpu_op_type(op.name) == op.kernel_types[0] for op in FUSED_OPS)
    kinds = {"npu::npu_geglu": "GeGluV2", "fusionkit::layer_norm_scale_shift": "AdaLayerNorm"}
    assert {op: cpu_op_type(op) for op in kinds} == kinds


def test_older_types_are_of_the_stem_and_family_of_the_present_one() -> None:
    assert {old: stem(old) for op in FUSED_OPS for old in op.older_types} == {
        "RotaryMul": "RotaryPositionEmbedding",
        "adaln": "LayerNormScaleShift",
    }
    assert (family_of("RotaryMul"), family_of("adaln")) == ("rotary", "norm")


def test_versions_are_one_stem_and_grads_are_not() -> None:
    assert stem("MatMulV2") == stem("MatMulV3") == "MatMul"
    assert stem("RotaryMul") == "RotaryPositionEmbedding"
    assert stem("RmsNormGrad") != stem("RmsNorm")
    assert stem("Gelu") != stem("FastGelu")


def test_launch_names_keep_the_api_and_lose_the_index() -> None:
    assert launch_name(record("Transpose", "aclnnMul_TransposeAiCore_Transpose")).startswith("aclnnMul")
    assert launch_name(record("Transpose", "Transpose17")) == launch_name(record("Transpose", "Transpose4"))


@pytest.mark.parametrize(
    "name",
    [
        "rope",
        "npu::npu_rotary_mul",
        "npu_rotary_mul",
        "RotaryMul",
        "RotaryPositionEmbedding",
        "rotarypositionembedding",
    ],
)
def test_rope_is_found_under_all_its_names(name: str) -> None:
    api = "aclnnRotaryPositionEmbeddingV2_RotaryPositionEmbedding_RotaryPositionEmbedding"
    assert is_kernel(record("RotaryPositionEmbedding", api), name)
    assert is_kernel(record("RotaryMul"), name)
    assert not is_kernel(record("RotaryPositionEmbeddingGrad"), name)


def test_the_gelu_pattern_is_either_kernel_but_a_type_is_itself() -> None:
    kinds = {kind for op in fused_ops("gelu") for kind in op.kernel_types}
    assert kinds >= {"Gelu", "FastGelu", "FastGeluV2"}
    assert not is_kernel(record("Gelu"), "FastGelu")
    assert is_kernel(record("FastGeluV2"), "FastGelu")


def test_on_a_cpu_the_op_decides_and_not_the_type() -> None:
    assert is_kernel(cpu("npu::npu_gelu", "Gelu"), "gelu")
    assert not is_kernel(cpu("aten::gelu", "Gelu"), "gelu")
    assert not is_kernel(cpu("aten::gelu", "Gelu"), "Gelu")
    assert is_kernel(cpu("aten::gelu", "Gelu"), "aten::gelu")


def test_a_kernel_of_ones_own_by_type_or_name() -> None:
    own = record("QuantFfn", "mm_swiglu_mxquant")
    assert is_kernel(own, "mm_swiglu_mxquant")
    assert is_kernel(own, "quantffn")
    assert not is_kernel(own, "swiglu")


def test_names_of_the_grammar_give_their_last_part() -> None:
    for op in FUSED_OPS:
        for kind in op.every_type:
            if re.fullmatch(r"[A-Z]\w*", kind):
                assert op_type_of_name(f"aclnnSome_{kind}AiCore_{kind}") == kind
