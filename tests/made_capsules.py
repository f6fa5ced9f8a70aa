"""A capsule as target npu-dry writes it, by hand: fused by the library, still to be fused, and ops of torch_npu alone."""

from __future__ import annotations

import copy
from typing import Any

# As torch_npu 2.13 registers them with the dispatcher.
OPS = {
    "npu._npu_dtype_cast.default": "npu::_npu_dtype_cast(Tensor input, ScalarType dtype) -> Tensor",
    "npu.npu_fusion_attention_v3.default": (
        "npu::npu_fusion_attention_v3(Tensor query, Tensor key, Tensor value, int head_num, str input_layout,"
        " Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1.,"
        " float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0,"
        " SymInt[]? prefix=None, Tensor? actual_seq_qlen=None, Tensor? actual_seq_kvlen=None, int sparse_mode=0,"
        ' bool gen_mask_parallel=True, bool sync=False, str softmax_layout="", Tensor? sink=None)'
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
    "npu.npu_geglu.default": (
        "npu::npu_geglu(Tensor input, int dim=-1, int approximate=1, bool activate_left=False)"
        " -> (Tensor, Tensor)"
    ),
    "npu.npu_rms_norm.default": (
        "npu::npu_rms_norm(Tensor input, Tensor gamma, float epsilon=9.9999999999999995e-07)"
        " -> (Tensor, Tensor)"
    ),
}

NORM = (
    "diffusers/models/normalization.py:550",
    "hidden_states = torch_npu.npu_rms_norm(hidden_states, w)[0]",
)
GEGLU = ("diffusers/models/activations.py:120", "return torch_npu.npu_geglu(hidden_states, dim=-1)[0]")
OWN = ("made/model.py:12", "x = self.own(x)")
MLP = ("made/model.py:13", "x = F.silu(self.gate(x)) * self.up(x)")
ATTENTION = ("made/model.py:14", "x = F.scaled_dot_product_attention(q, k, v)")

_BF16 = {"dtype": "bfloat16"}
_BACK = {"device": {"device": "npu:0"}, "dtype": _BF16, "layout": {"layout": "strided"}}


def meta(*shape: int, dtype: str = "bfloat16") -> dict[str, Any]:
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return {"shape": list(shape), "stride": stride, "dtype": dtype, "device": "npu:0"}


def ref(name: str) -> dict[str, str]:
    return {"node": name}


WIDE, ONE, F32 = meta(2, 8, 16), meta(2, 8, 1, dtype="float32"), meta(2, 8, 16, dtype="float32")
HEADS = meta(2, 1, 8, 16)

# name, target, args, kwargs, meta, module, (source, text)
_CALLS: tuple[tuple[str, str, list[Any], dict[str, Any], Any, str, tuple[str, str]], ...] = (
    ("npu_rms_norm", "npu.npu_rms_norm.default", [ref("x"), ref("g1")], {}, [WIDE, ONE], "norm", NORM),
    ("getitem", "operator.getitem", [ref("npu_rms_norm"), 0], {}, WIDE, "norm", NORM),
    ("to_f32", "aten._to_copy.default", [ref("getitem")], {"dtype": {"dtype": "float32"}}, F32, "own", OWN),
    ("pow_1", "aten.pow.Tensor_Scalar", [ref("to_f32"), 2], {}, F32, "own", OWN),
    ("mean", "aten.mean.dim", [ref("pow_1"), [2], True], {}, ONE, "own", OWN),
    ("add", "aten.add.Scalar", [ref("mean"), 9.999999974752427e-07], {}, ONE, "own", OWN),
    ("rsqrt", "aten.rsqrt.default", [ref("add")], {}, ONE, "own", OWN),
    ("mul", "aten.mul.Tensor", [ref("to_f32"), ref("rsqrt")], {}, F32, "own", OWN),
    ("mul_1", "aten.mul.Tensor", [ref("mul"), ref("g2")], {}, F32, "own", OWN),
    ("to_bf16", "aten._to_copy.default", [ref("mul_1")], _BACK, WIDE, "own", OWN),
    ("t", "aten.t.default", [ref("gate")], {}, meta(16, 32) | {"stride": [1, 16]}, "mlp.gate", MLP),
    ("matmul", "aten.matmul.default", [ref("to_bf16"), ref("t")], {}, meta(2, 8, 32), "mlp.gate", MLP),
    ("silu", "aten.silu.default", [ref("matmul")], {}, meta(2, 8, 32), "mlp", MLP),
    ("t_1", "aten.t.default", [ref("up")], {}, meta(16, 32) | {"stride": [1, 16]}, "mlp.up", MLP),
    ("matmul_1", "aten.matmul.default", [ref("to_bf16"), ref("t_1")], {}, meta(2, 8, 32), "mlp.up", MLP),
    ("mul_2", "aten.mul.Tensor", [ref("silu"), ref("matmul_1")], {}, meta(2, 8, 32), "mlp", MLP),
    ("geglu", "npu.npu_geglu.default", [ref("mul_2"), -1, 1], {}, [WIDE, WIDE], "ff", GEGLU),
    ("getitem_1", "operator.getitem", [ref("geglu"), 0], {}, WIDE, "ff", GEGLU),
    ("q", "aten.unsqueeze.default", [ref("getitem_1"), 1], {}, HEADS, "", ATTENTION),
    (
        "attention",
        "npu.npu_fusion_attention_v3.default",
        [ref("q"), ref("q"), ref("q"), 1, "BNSD", None, None, None, 0.25],
        {},
        [HEADS, *[meta(2, 1, 8, 8, dtype="float32")] * 2, meta(0), meta(0), meta(0)],
        "",
        ATTENTION,
    ),
    ("getitem_2", "operator.getitem", [ref("attention"), 0], {}, HEADS, "", ATTENTION),
    (
        "cast",
        "npu._npu_dtype_cast.default",
        [ref("getitem_2"), {"dtype": "float32"}],
        {},
        None,
        "",
        ATTENTION,
    ),
)
_INPUTS = {"x": WIDE, "g1": meta(16), "g2": meta(16), "gate": meta(32, 16), "up": meta(32, 16)}


def dry_capsule() -> dict[str, Any]:
    """Subject `made` on npu-dry: rms_norm once fused by the library and once to be fused, swiglu over two matmuls."""
    nodes = [_node(name, name, form, op="placeholder") for name, form in _INPUTS.items()]
    for name, target, args, kwargs, form, module, (source, text) in _CALLS:
        form = meta(2, 1, 8, 16, dtype="float32") if form is None else form
        nodes.append(
            _node(name, target, form, args=args, kwargs=kwargs, module=module, source=source, text=text)
        )
    nodes.append(_node("output", "output", None, op="output", args=[{"tuple": [ref("cast")]}]))
    data = {
        "schema": "fusionkit.capsule/1",
        "origin": "torch.compile",
        "subject": "made",
        "target": "npu-dry",
        "dtype": "bfloat16",
        "size": "tiny",
        "seed": 0,
        "decompositions": "none",
        "torch": "2.13.0",
        "breaks": [],
        "recompiles": [],
        "notes": [],
        "ops": dict(OPS),
        "symbols": {},
        "sites": {
            "rms_norm": _count(("norm", NORM[0]), ("own", OWN[0])),
            "swiglu": _count(("mlp", MLP[0])),
        },
        "graphs": [
            {
                "index": 0,
                "kind": "inference",
                "compile_id": "0/0",
                "window": "before-freezing",
                "nodes": [node | {"users": _users(node["name"], nodes)} for node in nodes],
            }
        ],
    }
    return copy.deepcopy(data)


def _node(
    name: str,
    target: str,
    form: Any,
    *,
    op: str = "call_function",
    args: Any = (),
    kwargs: Any = None,
    module: str = "",
    source: str = "",
    text: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "op": op,
        "target": target,
        "args": list(args),
        "kwargs": kwargs or {},
        "meta": form,
        "module": module,
        "source": source,
        "text": text,
    }


def _users(name: str, nodes: list[dict[str, Any]]) -> list[str]:
    told = str(ref(name))
    return [node["name"] for node in nodes if told in str(node["args"])]


def _count(*places: tuple[str, str]) -> dict[str, Any]:
    sites = [{"module": module, "source": source, "caller": source} for module, source in places]
    return {"declared": None, "complete": True, "sites": sites}
