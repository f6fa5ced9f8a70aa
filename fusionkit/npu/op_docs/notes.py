"""Corrections of torch_npu's documents where they are wrong, incomplete or contradictory: one literal table.

Each claim has a test in tests/npu/op_docs/test_notes.py, on the CPU kernels or, without a kernel, on the wheel's schema.
"""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.encoding import Result


@dataclass(frozen=True, slots=True)
class Note(Result, without=("ops",)):
    """One claim on some ops, in English and Chinese, with its source."""

    id: str
    ops: tuple[str, ...]
    en: str
    zh: str
    source: str

    def text(self, lang: str) -> str:
        """The claim in "en" or "zh"."""
        return self.zh if lang == "zh" else self.en


_ATTENTION = ("npu_fusion_attention", "npu_fusion_attention_v2", "npu_fusion_attention_v3")

NOTES: tuple[Note, ...] = (
    Note(
        "swiglu_half",
        ("npu_swiglu",),
        "SiLU is applied to the first half along dim: silu(first) * second. The docstring does not say which half.",
        "SiLU 作用于 dim 方向的前半部分：silu(前半) * 后半。docstring 未说明是哪一半。",
        "op-plugin test_npu_swi_glu.py and its backward; aclnnSwiGlu",
    ),
    Note(
        "swiglu_quant_half",
        ("npu_swiglu_quant", "npu_dequant_swiglu_quant", "npu_swiglu_mx_quant"),
        "activate_left defaults to False, which activates the second half: the opposite of npu_swiglu. To fuse"
        " npu_swiglu with a quantisation pass activate_left=True. One README says the first half in every case.",
        "activate_left 默认 False，激活后半部分，与 npu_swiglu 相反；把 npu_swiglu 与量化融合时须传 activate_left=True。"
        "有一份 README 称总是前半部分，有误。",
        "op-plugin test_npu_swiglu_quant.py; aclnnDequantSwigluQuantV2",
    ),
    Note(
        "fast_gelu_formula",
        ("npu_fast_gelu", "fast_gelu"),
        "Computes x * sigmoid(1.702 x) on every product. The formula 1 of the documents has a factor x too many in"
        " its exponent (it would give -4.64 at x = -1); it is not the tanh GELU either.",
        "所有型号上都计算 x * sigmoid(1.702 x)。文档公式 1 的指数多乘了一个 x（按它 x = -1 时得 -4.64）；"
        "也不是 tanh 近似的 GELU。",
        "ops-nn README of fast_gelu_v2; op-plugin test_fast_gelu.py",
    ),
    Note(
        "geglu_half",
        ("npu_geglu",),
        "By default (activate_left=False) GELU is applied to the second half: first * gelu(second), as Megatron and"
        " diffusers write it; code in LLaMA's order needs activate_left=True. approximate defaults to 1, tanh."
        " The docstring shows an older signature without activate_left.",
        "默认 activate_left=False，GELU 作用于后半部分：前半 * gelu(后半)，与 Megatron、diffusers 写法一致；LLaMA 式写法须传"
        " activate_left=True。approximate 默认 1（tanh）。docstring 是没有 activate_left 的旧签名。",
        "torch_npu's registered schema; aclnnGeGluV3",
    ),
    Note(
        "rotary_matrix",
        ("npu_rotary_mul",),
        "The example matrix for `rotate` in mode interleave has +1 on both sides of the diagonal and swaps the pairs"
        " only; entry [i + 1, i] must be -1. The example for mode half is right.",
        "interleave 模式示例中的 rotate 矩阵两侧都是 +1，只交换相邻元素；[i + 1, i] 处应为 -1。half 模式的示例是对的。",
        "the rotation that the same page states: [-x2, x1] of each pair",
    ),
    Note(
        "rotary_names",
        ("npu_rotary_mul",),
        "The parameters that the document calls cos and sin are named r1 and r2 in a call; both have the full head"
        " size D of input, not half of it.",
        "文档参数说明中的 cos、sin 在调用时名为 r1、r2；二者的最后一维都是 input 的完整 D，而不是一半。",
        "torch_npu's registered schema; op-plugin test_npu_rotary_mul.py",
    ),
    Note(
        "rms_norm_gamma",
        ("npu_rms_norm",),
        "gamma may be float32 with a float16 or bfloat16 input (Atlas A2 and A3), and usually has one dimension; the"
        " docstring asks for input's dtype and for 2 to 8 dimensions. The second output, rstd, is always float32.",
        "input 为 float16 或 bfloat16 时 gamma 可为 float32（Atlas A2、A3），且通常是 1 维；docstring 却要求与 input 同 dtype、"
        "2-8 维。第二个输出 rstd 恒为 float32。",
        "aclnnRmsNorm; the docstring's own example has a gamma of one dimension",
    ),
    Note(
        "attention_pse",
        _ATTENTION,
        "pse is added before the scale: softmax(scale * (q @ k^T + pse)). The example with pse adds it after the"
        " scale and only prints the difference; divide an additive mask by scale before passing it as pse.",
        "pse 在缩放之前相加：softmax(scale * (q @ k^T + pse))。带 pse 的示例在缩放之后相加，只打印了误差；"
        "把加性 mask 当作 pse 传入前须先除以 scale。",
        "the formula of the same page; default pse_type 1 of torch_npu",
    ),
    Note(
        "attention_mask",
        _ATTENTION,
        "True (or 1) in atten_mask drops a score, the opposite of torch's scaled_dot_product_attention. The causal"
        " mask that the documents call lower triangular is torch.triu(ones, diagonal=1); sparse modes 2 to 4 need it"
        " in size 2048 x 2048 whatever the sequence length, and without an atten_mask every sparse_mode computes full"
        " attention.",
        "atten_mask 中 True（或 1）表示屏蔽，与 torch 的 scaled_dot_product_attention 相反。文档所说的下三角矩阵实为"
        " torch.triu(ones, diagonal=1)；sparse_mode 2 到 4 无论序列多长都要 2048 x 2048 的它；不传 atten_mask 时任何"
        " sparse_mode 都按全注意力计算。",
        "op-plugin docs and tests of npu_fusion_attention",
    ),
    Note(
        "attention_prefix",
        _ATTENTION,
        "Of sparse modes 5 and 6 one sentence says both that they extend rightDownCausal and that their origin is the"
        " upper left; for Sq != Skv it is not known which holds.",
        "关于 sparse_mode 5 和 6，同一句话既说以 rightDownCausal 为基础，又说起点为左上角；Sq != Skv 时以哪个为准尚不清楚。",
        "op-plugin docs of npu_fusion_attention",
    ),
    Note(
        "permute_indices",
        ("npu_moe_token_permute", "npu_moe_token_unpermute"),
        "sorted_indices is the inverse permutation argsort(argsort(indices.flatten())): permuted[sorted_indices[i]] is"
        " tokens[i // topK]. It keeps tokens * topK entries also where num_out_tokens truncates the data. An older"
        " docstring, replaced at run time, passed a single argsort in its example.",
        "sorted_indices 是逆排列 argsort(argsort(indices.flatten()))：permuted[sorted_indices[i]] 即 tokens[i // topK]；"
        "num_out_tokens 截断数据时它仍有 tokens * topK 个元素。运行时被覆盖的旧 docstring 在示例中误用了单次 argsort。",
        "the newer docstring; op-plugin test_npu_moe_token_permute_and_unpermute.py",
    ),
    Note(
        "grouped_group_type",
        ("npu_grouped_matmul",),
        "group_type 0 groups along m, 2 along k, -1 not at all. The docstring calls 1 the n axis and does not name 2.",
        "group_type：0 为 m 轴分组，2 为 k 轴分组，-1 为不分组。docstring 把 1 写作 n 轴，没有提到 2。",
        "op-plugin docs page and test of npu_grouped_matmul",
    ),
    Note(
        "grouped_group_list",
        ("npu_grouped_matmul",),
        "group_list_type 0 takes cumulative row counts (the last one is the number of rows), 1 counts per group (their"
        " sum is the number of rows). A group_list that is a list of int is always cumulative.",
        "group_list_type 为 0 时 group_list 是累积行数（最后一个等于总行数），为 1 时是每组行数（总和等于总行数）。"
        "group_list 为 int 列表时总是累积值。",
        "op-plugin docs page and test of npu_grouped_matmul",
    ),
    Note(
        "rotary_in_place",
        ("npu_apply_rotary_pos_emb",),
        "Writes its result into query and key, though its schema declares no mutation: under torch.compile a later"
        " read of the original query or key is wrong. Clone them first.",
        "结果会原地写入 query 和 key，而 schema 没有声明修改：torch.compile 下再读取原来的 query 或 key 会出错，应先 clone。",
        "op-plugin docs of npu_apply_rotary_pos_emb; torch_npu's registered schema",
    ),
)


def notes_on(name: str) -> tuple[Note, ...]:
    """The notes on an op, in the order of the table."""
    return tuple(note for note in NOTES if name in note.ops)
