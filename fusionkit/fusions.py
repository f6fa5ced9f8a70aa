"""The table of fusions: one literal row each, the only place for facts about a fusion.

Exceptions are the three registrations of a pattern (`patterns.__all__`, `passes.pattern_registry`,
`config.FusionPatterns`), which phase 3 and tests/test_fusions.py compare with the rows.
"""

from __future__ import annotations

from typing import Any

from fusionkit.counters import (
    FunctionCounter,
    ModuleCounter,
    is_layer_norm_without_affine,
    is_named,
    is_packed_swiglu_mlp,
    is_swiglu_mlp,
)
from fusionkit.errors import MisuseError
from fusionkit.fusion_rows import FusedOp, Fusion, Pattern

# Fields of the rows of fused ops that the kit has no pattern for.
_NO_PATTERN: dict[str, Any] = {"library_ops": (), "counters": (), "benefit": "fewer kernels", "pattern": None}

# In the order of matching: a longer chain precedes a shorter one that is part of it.
FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        name="rms_norm",
        chain="cast, square, mean, +eps, rsqrt, scale, gain",
        ops=(FusedOp("npu::npu_rms_norm", kernel_types=("RmsNorm",), source="CANN ops-nn norm/rms_norm"),),
        library_ops=("npu.npu_gemma_rms_norm", "npu.npu_add_rms_norm"),
        primitive="rms_norm",
        # torch.nn.RMSNorm, diffusers.models.normalization.RMSNorm, transformers' LlamaRMSNorm and its copies,
        # among them Gemma3RMSNorm (1 + weight) and GptOssRMSNorm: each forward is one norm.
        counters=(
            ModuleCounter(
                "rms_norm",
                "forward of a module whose class name ends in RMSNorm",
                lambda module: type(module).__name__.endswith("RMSNorm"),
            ),
            FunctionCounter(
                "rms_norm", "call of F.rms_norm outside such a module", ("torch.nn.functional:rms_norm",)
            ),
        ),
        benefit="fewer kernels",
        reason="a chain of 6 to 8 small kernels becomes one",
        pattern=Pattern(
            module="fusionkit.patterns.rms_norm_pattern", group="RmsNormPatternGroup", flag="enable_rms_norm"
        ),
    ),
    Fusion(
        name="rope",
        chain="x*cos + rotate(x)*sin, interleaved and half",
        ops=(
            FusedOp(
                "npu::npu_rotary_mul",
                kernel_types=("RotaryPositionEmbedding",),
                older_types=("RotaryMul",),
                source="CANN ops-transformer posembedding/rotary_position_embedding; RotaryMul before",
            ),
        ),
        library_ops=("npu.npu_interleave_rope", "npu.npu_apply_rotary_pos_emb"),
        primitive="rope",
        counters=(),  # every library has a function of its own
        benefit="fewer kernels",
        reason="slices, negation, concatenation and two products become one kernel",
        pattern=Pattern(
            module="fusionkit.patterns.rope_pattern", group="RopePatternGroup", flag="enable_rope"
        ),
    ),
    Fusion(
        name="swiglu",
        chain="silu(gate(x)) * up(x), with one linear for both",
        ops=(FusedOp("npu::npu_swiglu", kernel_types=("SwiGlu",), source="CANN ops-nn activation/swi_glu"),),
        library_ops=(),
        primitive="swiglu",
        # diffusers.models.activations.SwiGLU (MiniMax-H3): the gate is the second half; Flux2SwiGLU: the first.
        counters=(
            ModuleCounter(
                "swiglu", "forward of an MLP with gate_proj, up_proj, down_proj and SiLU", is_swiglu_mlp
            ),
            ModuleCounter(
                "swiglu", "forward of an MLP with gate_up_proj, down_proj and SiLU", is_packed_swiglu_mlp
            ),
            ModuleCounter(
                "swiglu", "forward of diffusers' SwiGLU or Flux2SwiGLU", is_named("SwiGLU", "Flux2SwiGLU")
            ),
        ),
        benefit="fewer kernels",
        reason="activation and product become one kernel, two matmuls one",
        pattern=Pattern(
            module="fusionkit.patterns.swiglu_pattern", group="SwigluPatternGroup", flag="enable_swiglu"
        ),
    ),
    Fusion(
        name="ada_layer_norm",
        chain="layer norm without affine, *(1+scale), +shift",
        ops=(
            FusedOp(
                "fusionkit::layer_norm_scale_shift",
                kernel_types=("AdaLayerNorm", "AdaLayerNormV2", "LayerNormScaleShift", "adaln"),
                source="CANN ops-nn norm/ada_layer_norm; MindIE-SD layernorm_scale_shift",
            ),
            FusedOp(
                "mindiesd::layernorm_scale_shift",
                kernel_types=("LayerNormScaleShift",),
                older_types=("adaln",),
                source="MindIE-SD layernorm_scale_shift, adaln before",
            ),
        ),
        library_ops=(),
        primitive="ada_layer_norm",
        # FLUX, FLUX.2, HunyuanVideo: norm1, norm1_context, norm2, norm2_context, norm, norm_out, each scaled and
        # shifted once by its caller; the norms of HunyuanVideo's refiner have an affine and are no sites.
        counters=(
            ModuleCounter(
                "ada_layer_norm",
                "forward of a torch.nn.LayerNorm without affine, whose caller scales and shifts",
                is_layer_norm_without_affine,
                in_caller=True,
                anywhere=False,
            ),
        ),
        benefit="fewer kernels",
        reason="norm, scale and shift become one kernel",
        pattern=Pattern(
            module="fusionkit.patterns.ada_layer_norm_pattern",
            group="AdaLayerNormPatternGroup",
            flag="enable_ada_layer_norm",
        ),
    ),
    Fusion(
        name="gelu",
        chain='gelu(approximate="tanh")',
        ops=(
            FusedOp(
                "npu::npu_gelu", kernel_types=("Gelu", "GeluV2"), source="op-plugin npu_gelu: aclnnGeluV2"
            ),
            FusedOp(
                "npu::npu_fast_gelu",
                kernel_types=("FastGelu", "FastGeluV2"),
                source="CANN ops-nn activation/fast_gelu, fast_gelu_v2",
            ),
        ),
        library_ops=(),
        primitive="gelu",
        # torch.nn.GELU, diffusers' GELU and bare calls all end in F.gelu: counted there, and only there.
        # transformers.activations: GELUTanh (Gemma 3) keeps F.gelu in a functools.partial, or writes the formula
        # out; NewGELUActivation (GPT-J) writes it out.
        counters=(
            FunctionCounter(
                "gelu",
                'call of F.gelu with approximate="tanh"',
                ("torch.nn.functional:gelu",),
                counts=lambda keywords: keywords.get("approximate") == "tanh",
            ),
            ModuleCounter(
                "gelu",
                "forward of transformers' GELUTanh or NewGELUActivation",
                is_named("GELUTanh", "NewGELUActivation"),
            ),
        ),
        benefit="none",
        reason="one kernel takes the place of one: a choice of implementation, no kernel is saved",
        pattern=Pattern(
            module="fusionkit.patterns.gelu_pattern", group="GeluPatternGroup", flag="enable_gelu"
        ),
    ),
    Fusion(
        name="add_rms_norm",
        chain="residual addition, then rms_norm",
        ops=(
            FusedOp(
                "npu::npu_add_rms_norm", kernel_types=("AddRmsNorm",), source="CANN ops-nn norm/add_rms_norm"
            ),
        ),
        primitive="add_rms_norm",
        reason="the addition becomes part of the norm's kernel",
        **_NO_PATTERN,
    ),
    Fusion(
        name="geglu",
        chain="gelu(gate(x)) * up(x)",
        ops=(
            FusedOp(
                "npu::npu_geglu", kernel_types=("GeGluV2", "GeGlu"), source="CANN ops-nn activation/ge_glu_v2"
            ),
        ),
        primitive="geglu",
        reason="activation and product become one kernel",
        **_NO_PATTERN,
    ),
    Fusion(
        name="attention",
        chain="softmax(q k^T * scale + mask) v",
        ops=(
            FusedOp(
                "npu::npu_fusion_attention",
                kernel_types=("FlashAttentionScore",),
                source="CANN ops-transformer attention/",
            ),
            FusedOp(
                "npu::npu_prompt_flash_attention",
                kernel_types=("PromptFlashAttention",),
                source="CANN ops-transformer attention/",
            ),
        ),
        primitive="attention",
        reason="two matmuls, scale, mask and softmax become one kernel",
        **_NO_PATTERN,
    ),
    Fusion(
        name="grouped_matmul",
        chain="one linear for each expert over its own tokens",
        ops=(
            FusedOp(
                "npu::npu_grouped_matmul",
                kernel_types=("GroupedMatmul",),
                source="CANN ops-transformer gmm/grouped_matmul",
            ),
        ),
        primitive="grouped_matmul",
        reason="the matmuls of all experts become one kernel",
        **_NO_PATTERN,
    ),
    Fusion(
        name="scaled_masked_softmax",
        chain="softmax(x * scale masked)",
        ops=(
            FusedOp(
                "npu::npu_scaled_masked_softmax", kernel_types=("ScaledMaskedSoftmax",), source="op-plugin"
            ),
        ),
        primitive="scaled_masked_softmax",
        reason="scale, mask and softmax become one kernel",
        **_NO_PATTERN,
    ),
)


def fusion(name: str) -> Fusion:
    """The row of that name. Raises MisuseError without one."""
    rows = {row.name: row for row in FUSIONS}
    if name not in rows:
        raise MisuseError(f"no fusion {name!r} in fusionkit/fusions.py; it has {', '.join(rows)}")
    return rows[name]


def registrations() -> dict[str, Pattern]:
    """Name -> registrations of the fusions with a pattern, in the order of matching."""
    return {row.name: row.pattern for row in FUSIONS if row.pattern is not None}


def pattern_names() -> tuple[str, ...]:
    """The names of the fusions with a pattern, in the order of matching."""
    return tuple(registrations())


def fused_packets(name: str) -> tuple[str, ...]:
    """The ops, as overload packets (`npu.npu_rms_norm`), by which a library fuses such a site itself.

    Empty for a name outside the table, such as that of a user's own pattern file.
    """
    return next(((*row.packets, *row.library_ops) for row in FUSIONS if row.name == name), ())


def sharing(name: str) -> tuple[str, ...]:
    """The fusion and those whose replacements call one of its ops, or one of theirs: only their sum is counted by op.

    The name alone for one outside the table.
    """
    names, packets = {name}, set(fusion(name).packets) if name in {row.name for row in FUSIONS} else set()
    while more := [row for row in FUSIONS if row.name not in names and packets.intersection(row.packets)]:
        names.update(row.name for row in more)
        packets.update(*(row.packets for row in more))
    return tuple(row.name for row in FUSIONS if row.name in names) or (name,)


def site_fusions() -> tuple[str, ...]:
    """The fusions whose ops are not among the library ops of another one."""
    of_others = {op for row in FUSIONS for op in row.library_ops}
    return tuple(row.name for row in FUSIONS if not of_others.intersection(row.packets))


def fusion_of_op(op: str) -> str | None:
    """The first fusion with a pattern whose replacement calls `op` (`npu::npu_gelu`); None without one."""
    rows = (row for row in FUSIONS if row.pattern is not None)
    return next((row.name for row in rows if op in [fused.name for fused in row.ops]), None)
