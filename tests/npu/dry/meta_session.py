"""Script: what torch_npu's own meta kernels and autograd make of the calls that target cpu is tested with."""

from __future__ import annotations

from typing import Any

from dry_processes import activate_dry, answer

activate_dry()

import torch  # noqa: E402
from op_calls import SCHEMAS, calls, operator  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from fusionkit.npu.library import NPU_KERNELS  # noqa: E402
from fusionkit.npu.schemas import bind  # noqa: E402
from fusionkit.subjects.build import new_fake_mode  # noqa: E402

FAKES = {kernel.op: kernel.fake for kernel in NPU_KERNELS}


def described(outputs: Any) -> list[str]:
    return [
        f"{list(leaf.shape)} {leaf.dtype} {list(leaf.stride())}"
        if isinstance(leaf, torch.Tensor)
        else repr(leaf)
        for leaf in pytree.tree_leaves(outputs)
    ]


def theirs(name: str, args: Any, kwargs: Any) -> list[str]:
    try:
        return described(operator(name)(*args, **kwargs))
    except TypeError as error:
        return [f"TypeError: {error}"]


compared: list[list[Any]] = []
for op, given, named in calls(grad=False):
    if op in SCHEMAS:
        args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (given, named))
        compared.append([op, theirs(op, args, kwargs), described(FAKES[op](**bind(op, *args, **kwargs)))])

with new_fake_mode():
    rows, probs = torch.randn(8, 3, device="npu"), torch.randn(4, 2, device="npu")
    order = torch.zeros(8, device="npu", dtype=torch.int32)
    graph = make_fx(torch.ops.npu.npu_moe_token_unpermute)(rows, order, probs).graph
    traced = [str(node.target) for node in graph.nodes if "npu." in str(node.target)]
tags = [str(tag) for tag in operator("npu_fusion_attention").tags]
answer({"compared": compared, "traced": traced, "tags": tags})
