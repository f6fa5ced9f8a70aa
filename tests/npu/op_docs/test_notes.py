"""The kit's notes: every claim is shown on the CPU kernels, or on the wheel's schema where there is no kernel.

Each test of a claim carries the note's id in CLAIMS, so that no note is without one. That the documents still say
what a note contradicts is tested on the wheel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.op_docs.index import ApiIndex
from fusionkit.npu.op_docs.notes import NOTES, notes_on
from fusionkit.npu.schemas import SCHEMAS, bind

Claim = Callable[[Any, pytest.FixtureRequest], None]
CLAIMS: dict[str, Claim] = {}


def shows(note: str, *, kernel: str | None = None) -> Callable[[Claim], Claim]:
    """Register a claim; one that needs a kernel which target cpu lacks is skipped with that reason."""

    def register(claim: Claim) -> Claim:
        def checked(npu: Any, request: pytest.FixtureRequest) -> None:
            if kernel is not None and kernel not in SCHEMAS:
                pytest.skip(f"target cpu has no kernel of {kernel}")
            claim(npu, request)

        CLAIMS[note] = checked
        return claim

    return register


def silu(x: float) -> float:
    return x / (1 + math.exp(-x))


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@shows("swiglu_half")
def _(npu, request):
    out = npu.npu_swiglu(torch.tensor([[1.0, -2.0, 3.0, 5.0]]))
    torch.testing.assert_close(out, torch.tensor([[silu(1.0) * 3.0, silu(-2.0) * 5.0]]))


@shows("swiglu_quant_half")
def _(npu, request):
    index = request.getfixturevalue("real_index")
    for op in notes_by_id["swiglu_quant_half"].ops:
        (schema,) = index.entries[op].schemas
        assert "bool activate_left=False" in schema.text


@shows("fast_gelu_formula")
def _(npu, request):
    values = [-3.0, -1.0, 0.5, 1.0, 2.0]
    out = npu.npu_fast_gelu(torch.tensor(values))
    torch.testing.assert_close(out, torch.tensor([x / (1 + math.exp(-1.702 * x)) for x in values]))
    printed = -1.0 / (1 + math.exp(-1.702)) * math.exp(0.851 * -1.0 * (-1.0 - 1.0))
    assert round(printed, 2) == -4.64
    assert abs(float(out[1]) - printed) > 4
    assert abs(float(out[3]) - gelu(1.0)) > 4e-3


@shows("geglu_half", kernel="npu_geglu")
def _(npu, request):
    x = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    default, left = npu.npu_geglu(x)[0], npu.npu_geglu(x, activate_left=True)[0]
    torch.testing.assert_close(default, torch.tensor([[1.0 * gelu(3.0), -2.0 * gelu(0.5)]]))
    torch.testing.assert_close(left, torch.tensor([[gelu(1.0) * 3.0, gelu(-2.0) * 0.5]]))


@shows("rotary_matrix")
def _(npu, request):
    x, ones, zeros = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]]), torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 1, 4)
    printed = torch.zeros(4, 4)
    for i in range(0, 4, 2):
        printed[i, i + 1] = 1
        printed[i + 1, i] = 1
    right = printed.clone()
    for i in range(0, 4, 2):
        right[i + 1, i] = -1
    by_mode = npu.npu_rotary_mul(x, zeros, ones, "interleave")
    assert by_mode.flatten().tolist() == [-2.0, 1.0, -4.0, 3.0]
    assert torch.equal(npu.npu_rotary_mul(x, zeros, ones, "interleave", right), by_mode)
    swapped = npu.npu_rotary_mul(x, zeros, ones, "interleave", printed)
    assert swapped.flatten().tolist() == [2.0, 1.0, 4.0, 3.0]


@shows("rotary_names")
def _(npu, request):
    x, table = torch.randn(1, 1, 2, 4), torch.ones(1, 1, 2, 4)
    assert npu.npu_rotary_mul(input=x, r1=table, r2=table).shape == x.shape
    with pytest.raises(MisuseError, match="argument cos is unknown"):
        bind("npu_rotary_mul", x, cos=table, sin=table)
    with pytest.raises(MisuseError, match="full head size D"):
        npu.npu_rotary_mul(x, table[..., :2], table[..., :2])


@shows("rms_norm_gamma")
def _(npu, request):
    x = torch.randn(2, 3, 4, dtype=torch.bfloat16)
    y, rstd = npu.npu_rms_norm(x, torch.full((4,), 2.0, dtype=torch.float32))
    assert (y.dtype, rstd.dtype) == (torch.bfloat16, torch.float32)
    assert npu.npu_rms_norm(x.half(), torch.ones(4, dtype=torch.float16))[1].dtype == torch.float32


def attention(npu: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **arguments: Any) -> torch.Tensor:
    return npu.npu_fusion_attention(q, k, v, q.shape[1], "BNSD", **arguments)[0]


def plain_attention(scores: torch.Tensor, v: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(scores) @ v, row by row; `kept` tells which scores take part."""
    out = torch.zeros(*scores.shape[:-1], v.shape[-1], dtype=torch.float64)
    for b, n, i in [
        (b, n, i)
        for b in range(scores.shape[0])
        for n in range(scores.shape[1])
        for i in range(scores.shape[2])
    ]:
        columns = [j for j in range(scores.shape[3]) if kept is None or bool(kept[i, j])]
        weights = [math.exp(float(scores[b, n, i, j])) for j in columns]
        for weight, j in zip(weights, columns, strict=True):
            out[b, n, i] += weight / sum(weights) * v[b, n, j].double()
    return out


def qkv(sizes: tuple[int, int] = (3, 3)) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(1, 2, size, 16, generator=generator) for size in (sizes[0], sizes[1], sizes[1]))  # type: ignore[return-value]


@shows("attention_pse", kernel="npu_fusion_attention")
def _(npu, request):
    q, k, v = qkv()
    pse = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(4))
    out = attention(npu, q, k, v, pse=pse, scale=0.25).double()
    scores = q.double() @ k.double().transpose(-1, -2)
    torch.testing.assert_close(out, plain_attention(0.25 * (scores + pse), v), rtol=1e-4, atol=1e-5)
    assert (out - plain_attention(0.25 * scores + pse, v)).abs().max() > 1e-2


@shows("attention_mask", kernel="npu_fusion_attention")
def _(npu, request):
    q, k, v = qkv()
    scores = 0.25 * (q.double() @ k.double().transpose(-1, -2))
    causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), diagonal=1)
    expected = plain_attention(scores, v, ~causal)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(
        attention(npu, q, k, v, atten_mask=causal, scale=0.25).double(), expected, **close
    )
    template = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), diagonal=1)
    compressed = attention(npu, q, k, v, atten_mask=template, scale=0.25, sparse_mode=2)
    torch.testing.assert_close(compressed.double(), expected, **close)
    unmasked = attention(npu, q, k, v, scale=0.25, sparse_mode=2)
    torch.testing.assert_close(unmasked.double(), plain_attention(scores, v), **close)
    with pytest.raises(MisuseError, match="atten_mask"):
        attention(npu, q, k, v, atten_mask=causal, scale=0.25, sparse_mode=2)


@shows("attention_prefix")
def _(npu, request):
    index = request.getfixturevalue("real_index")
    text = index.entries["npu_fusion_attention"].doc.text
    (line,) = (line for line in text.splitlines() if line.startswith("sparse_mode为5时"))
    assert "rightDownCa" in line
    assert "左上角" in line


@shows("permute_indices", kernel="npu_moe_token_permute")
def _(npu, request):
    tokens = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    experts = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]])
    permuted, order = npu.npu_moe_token_permute(tokens, experts)
    assert order.tolist() == [0, 4, 5, 1, 2, 6, 7, 3]
    assert [float(permuted[at, 0]) for at in order.tolist()] == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    truncated, order = npu.npu_moe_token_permute(tokens, experts, num_out_tokens=5)
    assert (len(truncated), len(order)) == (5, 8)


@shows("grouped_group_type", kernel="npu_grouped_matmul")
def _(npu, request):
    x, weight = torch.randn(5, 3).t(), torch.randn(5, 4)
    ends = torch.tensor([2, 5])
    (out,) = npu.npu_grouped_matmul([x], [weight], group_list=ends, group_type=2, split_item=3)
    torch.testing.assert_close(
        out.reshape(2, 3, 4), torch.stack([x[:, :2] @ weight[:2], x[:, 2:] @ weight[2:]])
    )
    with pytest.raises(MisuseError, match="group_type"):
        npu.npu_grouped_matmul([x], [weight], group_list=ends, group_type=1, split_item=3)


@shows("grouped_group_list", kernel="npu_grouped_matmul")
def _(npu, request):
    x, weight = torch.randn(5, 3), torch.randn(2, 3, 4)
    expected = torch.cat([x[:2] @ weight[0], x[2:] @ weight[1]])
    for kind, numbers in ((0, [2, 5]), (1, [2, 3])):
        (out,) = npu.npu_grouped_matmul(
            [x], [weight], group_list=torch.tensor(numbers), group_type=0, group_list_type=kind, split_item=3
        )
        torch.testing.assert_close(out, expected)
    (out,) = npu.npu_grouped_matmul([x], list(weight), group_list=[2, 5], split_item=3)
    torch.testing.assert_close(out, expected)


@shows("rotary_in_place")
def _(npu, request):
    entry = request.getfixturevalue("real_index").entries["npu_apply_rotary_pos_emb"]
    assert all("!" not in schema.text for schema in entry.schemas)
    assert "原地更新" in entry.doc.text


notes_by_id = {note.id: note for note in NOTES}


@pytest.mark.parametrize("note", sorted(notes_by_id))
def test_claim(note, npu, request):
    CLAIMS[note](npu, request)


def test_every_note_has_a_claim_and_every_claim_a_note():
    assert set(CLAIMS) == set(notes_by_id)
    assert len(notes_by_id) == len(NOTES)


# What the documents say that a note contradicts, or what they leave out (None: this word is nowhere in them).
SAID: tuple[tuple[str, str, str, bool], ...] = (
    ("swiglu_half", "npu_swiglu", "前半", False),
    ("fast_gelu_formula", "npu_fast_gelu", "0.851x(x-", True),
    ("geglu_half", "npu_geglu", "activate_left", False),
    ("rotary_matrix", "npu_rotary_mul", "rotate[i + 1, i + 0] = 1", True),
    ("rotary_names", "npu_rotary_mul", "cos: 必选输入", True),
    ("rms_norm_gamma", "npu_rms_norm", "数据类型需要和self保持一致", True),
    ("attention_pse", "npu_fusion_attention", "scale * QK^T + pse", True),
    ("attention_mask", "npu_fusion_attention", "应传入下三角矩阵", True),
    ("grouped_group_type", "npu_grouped_matmul", "1代表n轴分组", True),
)


@pytest.mark.parametrize(("note", "op", "words", "there"), SAID)
def test_the_documents_of_this_wheel_still_say_so(note, op, words, there, real_index: ApiIndex):
    assert op in notes_by_id[note].ops
    assert (words in real_index.entries[op].doc.text) is there


def test_the_older_entry_of_the_permutation_is_superseded(real_index: ApiIndex):
    doc = real_index.entries["npu_moe_token_permute"].doc
    assert len(doc.superseded) == 1
    assert int(doc.where.rpartition(":")[2]) > int(doc.superseded[0].rpartition(":")[2])
    assert "permuted_tokens[sorted_indices[i]] = tokens[i//topK]" in doc.text


def test_notes_are_told_in_both_languages_and_with_a_source():
    for note in NOTES:
        assert note.text("en") == note.en
        assert note.text("zh") == note.zh
        assert note.en.isascii()
        assert any("一" <= letter <= "鿿" for letter in note.zh)
        assert note.source
        assert all(note in notes_on(op) for op in note.ops)
    assert notes_on("npu_of_nothing") == ()
