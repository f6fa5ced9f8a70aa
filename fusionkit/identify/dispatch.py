"""Who runs in place of the code that is read: switches and branches around a symbol, by syntax."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from fusionkit.identify.rulings import Recommend
from fusionkit.identify.scan_file import Site
from fusionkit.identify.source.files import SourceFile, decorators_of


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One row: what decides, what that means for a recommendation, and how it is seen.

    `recommend`: "yes" where the code that is read runs unless the user chooses otherwise. `marks`: words of which one
    stands in a decorator (`at` "decorator"), in the symbol ("body") or in the file ("file").
    """

    name: str
    ops: tuple[str, ...]
    at: Literal["decorator", "body", "file"]
    marks: tuple[str, ...]
    recommend: Recommend
    reason: str
    reason_zh: str
    source: str


# In the order in which they decide.
DISPATCHES: tuple[Dispatch, ...] = (
    Dispatch(
        "npu_branch", (), "body", ("torch_npu", "is_torch_npu_available", "is_npu_available"), "no",
        "the symbol has an NPU branch already; what is read here is its else branch",
        "该处已有 NPU 分支，所读到的是它的 else 分支",
        "diffusers models/normalization.py, activations.py",
    ),
    Dispatch(
        "experts_switch", ("npu_grouped_matmul", "npu_swiglu", "npu_geglu"), "decorator", ("use_experts_implementation",),
        "defer",
        "the experts implementation decides: by default a grouped matmul runs, this loop only with"
        " experts_implementation='eager'",
        "由 experts_implementation 决定：默认走 grouped matmul，只有设为 'eager' 时才执行这段循环",
        "transformers integrations/moe.py",
    ),
    Dispatch(
        "attention_backend", ("npu_fusion_attention",), "body", ("dispatch_attention_fn",), "defer",
        "the attention backend decides: the library's own backend '_native_npu' calls npu_fusion_attention, so choose it"
        " with set_attention_backend before editing this",
        "由 attention backend 决定：库自带的 '_native_npu' 后端已调用 npu_fusion_attention，先用 set_attention_backend 选它",
        "diffusers models/attention_dispatch.py",
    ),
    Dispatch(
        "attention_interface", ("npu_fusion_attention",), "file", ("ALL_ATTENTION_FUNCTIONS",), "defer",
        "attn_implementation decides: this runs only with 'eager'; on an NPU 'flash_attention_2' calls torch_npu already",
        "由 attn_implementation 决定：仅 'eager' 时执行此函数；在 NPU 上 'flash_attention_2' 已调用 torch_npu",
        "transformers integrations/npu_flash_attention.py",
    ),
    Dispatch(
        "kernel_hub", (), "decorator", ("use_kernel",), "yes",
        "runs as it is read unless the model is kernelized (use_kernels=True)",
        "除非对模型做 kernelize（use_kernels=True），否则执行的就是这段代码",
        "transformers integrations/hub_kernels.py",
    ),
    Dispatch(
        "other_library", (), "body", ("is_fast_path", "causal_conv1d", "selective_"), "yes",
        "a library of CUDA kernels runs in its place where it is installed, which on an NPU it is not",
        "装有相应 CUDA 内核库时由它执行；NPU 上没有该库，执行的就是这段代码",
        "transformers models/mamba",
    ),
)  # fmt: skip


def dispatch_of(site: Site, file: SourceFile) -> Dispatch | None:
    """What decides whether the code of a site runs; None where nothing does, or nothing that is known."""
    if "dispatch_elsewhere" not in site.hazards:
        return None
    seen = {"decorator": _decorators(site, file), "body": _names(site, file), "file": set(file.modules)}
    for row in DISPATCHES:
        if row.ops and site.op not in row.ops:
            continue
        if any(mark in name for mark in row.marks for name in seen[row.at]):
            return row
    return None


def _nodes(site: Site, file: SourceFile) -> list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The class and the method, or the function, that a symbol names."""
    name, _, method = site.symbol.partition(".")
    cls = file.class_at(name, site.line)
    if cls is None:
        named = [item for item in file.every_function if item.name == name]
        return [*([item for item in named if item.lineno == site.line] or named[-1:])]
    methods = [method] if method else ["forward", "__call__"]
    return [cls.node, *(cls.methods[item] for item in methods if item in cls.methods)]


def _decorators(site: Site, file: SourceFile) -> set[str]:
    return {text for node in _nodes(site, file) for text in decorators_of(node)}


def _names(site: Site, file: SourceFile) -> set[str]:
    """Names and attributes in the function; in the whole class only where it is all there is."""
    nodes = _nodes(site, file)
    inner = [node for node in nodes if not isinstance(node, ast.ClassDef)] or nodes
    walked = [item for node in inner for item in ast.walk(node)]
    names = {item.id for item in walked if isinstance(item, ast.Name)}
    return names | {item.attr for item in walked if isinstance(item, ast.Attribute)}
