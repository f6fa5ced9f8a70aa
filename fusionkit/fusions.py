"""What the kit knows of each fusion: one literal row. Everything else reads it here.

A fusion with a pattern stands in three registrations besides (`patterns.__all__`, `passes.pattern_registry`,
`config.FusionPatterns`), which phase 3 and tests/test_fusions.py hold against the rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from fusionkit.counters import FunctionCounter, ModuleCounter, SiteCounter, is_silu
from fusionkit.errors import MisuseError

BenefitKind = Literal["fewer kernels", "less data movement", "none"]

_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class FusedOp:
    """A fused op as the dispatcher names it, its overloads, and the NPU kernel types (CANN's names) that it runs as."""

    name: str
    kernel_types: tuple[str, ...]
    source: str
    overloads: tuple[str, ...] = ("default",)

    @property
    def packet(self) -> str:
        """The op as a graph node names it without its overload: `npu.npu_rms_norm`."""
        return self.name.replace("::", ".")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The three registrations of a fusion's pattern: module, group and flag."""

    module: str
    group: str
    flag: str


@dataclass(frozen=True, slots=True)
class Fusion:
    """One row. Every field has to be given: a row that lacks one is refused at import.

    `name`: on the command line, in parameters and in results; the flag without `enable_`. `chain`: what is replaced.
    `ops`: what a replacement calls. `library_ops`: further ops by which a library fuses such a site itself.
    `primitive`: what `counters` count in eager mode; a primitive that only some libraries' functions compute has its
    counters in the rows of `subjects`. `benefit` and `reason`: what phase 1 forecasts. `pattern`: None where the kit
    has none.
    """

    name: str
    chain: str = _MISSING
    ops: tuple[FusedOp, ...] = _MISSING
    library_ops: tuple[str, ...] = _MISSING
    primitive: str = _MISSING
    counters: tuple[SiteCounter, ...] = _MISSING
    benefit: BenefitKind = _MISSING
    reason: str = _MISSING
    pattern: Pattern | None = _MISSING

    def __post_init__(self) -> None:
        lacking = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is _MISSING]
        if lacking:
            raise MisuseError(
                f"fusionkit/fusions.py: row {self.name!r} lacks {', '.join(lacking)}; give each field"
            )


# In the order in which the fusions are tried: a longer chain stands before a shorter one that is part of it.
FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        name="rms_norm",
        chain="cast, square, mean, +eps, rsqrt, scale, gain",
        ops=(FusedOp("npu::npu_rms_norm", ("RmsNorm",), "CANN ops-nn norm/rms_norm"),),
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
        pattern=Pattern("fusionkit.patterns.rms_norm_pattern", "RmsNormPatternGroup", "enable_rms_norm"),
    ),
    Fusion(
        name="rope",
        chain="x*cos + rotate(x)*sin, interleaved and half",
        ops=(
            FusedOp(
                "npu::npu_rotary_mul",
                ("RotaryPositionEmbedding", "RotaryMul"),
                "CANN ops-transformer posembedding/rotary_position_embedding; RotaryMul before",
            ),
        ),
        library_ops=("npu.npu_interleave_rope", "npu.npu_apply_rotary_pos_emb"),
        primitive="rope",
        counters=(),  # every library has a function of its own
        benefit="fewer kernels",
        reason="slices, negation, concatenation and two products become one kernel",
        pattern=Pattern("fusionkit.patterns.rope_pattern", "RopePatternGroup", "enable_rope"),
    ),
    Fusion(
        name="swiglu",
        chain="silu(gate(x)) * up(x), with one linear for both",
        ops=(FusedOp("npu::npu_swiglu", ("SwiGlu",), "CANN ops-nn activation/swi_glu"),),
        library_ops=(),
        primitive="swiglu",
        # transformers.models.llama.modeling_llama.LlamaMLP and its copies (Qwen3; DeepSeek-V3's dense layers and shared
        # experts): down_proj(silu(gate_proj(x)) * up_proj(x)). Glm4MLP: gate, up = gate_up_proj(x).chunk(2);
        # down_proj(up * silu(gate)). diffusers.models.activations.SwiGLU (MiniMax-H3; the gate is the second half),
        # Flux2SwiGLU (the first).
        counters=(
            ModuleCounter(
                "swiglu",
                "forward of an MLP with gate_proj, up_proj, down_proj and SiLU",
                lambda module: (
                    all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj"))
                    and is_silu(getattr(module, "act_fn", None))
                ),
            ),
            ModuleCounter(
                "swiglu",
                "forward of an MLP with gate_up_proj, down_proj and SiLU",
                lambda module: (
                    all(
                        type(getattr(module, name, None)).__name__ == "Linear"
                        for name in ("gate_up_proj", "down_proj")
                    )
                    and is_silu(getattr(module, "activation_fn", None))
                ),
            ),
            ModuleCounter(
                "swiglu",
                "forward of diffusers' SwiGLU or Flux2SwiGLU",
                lambda module: type(module).__name__ in ("SwiGLU", "Flux2SwiGLU"),
            ),
        ),
        benefit="fewer kernels",
        reason="activation and product become one kernel, two matmuls one",
        pattern=Pattern("fusionkit.patterns.swiglu_pattern", "SwigluPatternGroup", "enable_swiglu"),
    ),
    Fusion(
        name="ada_layer_norm",
        chain="layer norm without affine, *(1+scale), +shift",
        ops=(
            FusedOp(
                "fusionkit::layer_norm_scale_shift",
                ("AdaLayerNorm", "AdaLayerNormV2", "LayerNormScaleShift", "adaln"),
                "CANN ops-nn norm/ada_layer_norm; MindIE-SD layernorm_scale_shift",
            ),
            FusedOp(
                "mindiesd::layernorm_scale_shift",
                ("LayerNormScaleShift", "adaln"),
                "MindIE-SD layernorm_scale_shift, adaln before",
            ),
        ),
        library_ops=(),
        primitive="ada_layer_norm",
        # FLUX, FLUX.2, HunyuanVideo: norm1, norm1_context, norm2, norm2_context, norm, norm_out, each scaled and
        # shifted once by whoever calls it; the norms of HunyuanVideo's refiner have an affine and are not.
        counters=(
            ModuleCounter(
                "ada_layer_norm",
                "forward of a torch.nn.LayerNorm without affine, whose caller scales and shifts",
                lambda module: (
                    (type(module).__module__, type(module).__name__)
                    == ("torch.nn.modules.normalization", "LayerNorm")
                    and not module.elementwise_affine
                ),
                in_caller=True,
                anywhere=False,
            ),
        ),
        benefit="fewer kernels",
        reason="norm, scale and shift become one kernel",
        pattern=Pattern(
            "fusionkit.patterns.ada_layer_norm_pattern", "AdaLayerNormPatternGroup", "enable_ada_layer_norm"
        ),
    ),
    Fusion(
        name="gelu",
        chain='gelu(approximate="tanh")',
        ops=(
            FusedOp("npu::npu_gelu", ("Gelu", "GeluV2"), "op-plugin npu_gelu: aclnnGeluV2"),
            FusedOp(
                "npu::npu_fast_gelu",
                ("FastGelu", "FastGeluV2"),
                "CANN ops-nn activation/fast_gelu, fast_gelu_v2",
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
                lambda module: type(module).__name__ in ("GELUTanh", "NewGELUActivation"),
            ),
        ),
        benefit="none",
        reason="one kernel takes the place of one: a choice of implementation, no kernel is saved",
        pattern=Pattern("fusionkit.patterns.gelu_pattern", "GeluPatternGroup", "enable_gelu"),
    ),
    Fusion(
        name="add_rms_norm",
        chain="residual addition, then rms_norm",
        ops=(FusedOp("npu::npu_add_rms_norm", ("AddRmsNorm",), "CANN ops-nn norm/add_rms_norm"),),
        library_ops=(),
        primitive="add_rms_norm",
        counters=(),
        benefit="fewer kernels",
        reason="the addition becomes part of the norm's kernel",
        pattern=None,
    ),
    Fusion(
        name="geglu",
        chain="gelu(gate(x)) * up(x)",
        ops=(FusedOp("npu::npu_geglu", ("GeGlu", "GeGluV2"), "CANN ops-nn activation/ge_glu_v2"),),
        library_ops=(),
        primitive="geglu",
        counters=(),
        benefit="fewer kernels",
        reason="activation and product become one kernel",
        pattern=None,
    ),
    Fusion(
        name="attention",
        chain="softmax(q k^T * scale + mask) v",
        ops=(
            FusedOp(
                "npu::npu_fusion_attention",
                ("FlashAttentionScore",),
                "CANN ops-transformer attention/flash_attention_score",
            ),
            FusedOp(
                "npu::npu_prompt_flash_attention",
                ("PromptFlashAttention",),
                "CANN ops-transformer attention/prompt_flash_attention",
            ),
        ),
        library_ops=(),
        primitive="attention",
        counters=(),
        benefit="fewer kernels",
        reason="two matmuls, scale, mask and softmax become one kernel",
        pattern=None,
    ),
    Fusion(
        name="grouped_matmul",
        chain="one linear for each expert over its own tokens",
        ops=(
            FusedOp("npu::npu_grouped_matmul", ("GroupedMatmul",), "CANN ops-transformer gmm/grouped_matmul"),
        ),
        library_ops=(),
        primitive="grouped_matmul",
        counters=(),
        benefit="fewer kernels",
        reason="the matmuls of all experts become one kernel",
        pattern=None,
    ),
    Fusion(
        name="scaled_masked_softmax",
        chain="softmax(x * scale masked)",
        ops=(
            FusedOp(
                "npu::npu_scaled_masked_softmax",
                ("ScaledMaskedSoftmax",),
                "op-plugin npu_scaled_masked_softmax",
            ),
        ),
        library_ops=(),
        primitive="scaled_masked_softmax",
        counters=(),
        benefit="fewer kernels",
        reason="scale, mask and softmax become one kernel",
        pattern=None,
    ),
)


def fusion(name: str) -> Fusion:
    """The row of that name. Raises MisuseError where there is none."""
    for row in FUSIONS:
        if row.name == name:
            return row
    raise MisuseError(
        f"no fusion {name!r} in fusionkit/fusions.py; it has {', '.join(row.name for row in FUSIONS)}"
    )


def pattern_names() -> tuple[str, ...]:
    """The names of the fusions that the kit has a pattern for, in the order in which they are tried."""
    return tuple(row.name for row in FUSIONS if row.pattern is not None)


def fused_packets(name: str) -> tuple[str, ...]:
    """The ops, as graph nodes name them, by which a library has fused such a site before any pattern.

    Empty for a name outside the table, such as that of a user's own pattern file.
    """
    return next(((*_packets(row), *row.library_ops) for row in FUSIONS if row.name == name), ())


def site_fusions() -> tuple[str, ...]:
    """The fusions that have sites of their own: those whose ops are not among the library ops of another."""
    of_others = {op for row in FUSIONS for op in row.library_ops}
    return tuple(row.name for row in FUSIONS if not of_others.intersection(_packets(row)))


def fusion_of_op(op: str) -> str | None:
    """The first fusion with a pattern whose replacement calls `op` (`npu::npu_gelu`); None for another op."""
    rows = (row for row in FUSIONS if row.pattern is not None)
    return next((row.name for row in rows if op in [fused.name for fused in row.ops]), None)


def _packets(row: Fusion) -> tuple[str, ...]:
    return tuple(op.packet for op in row.ops)
