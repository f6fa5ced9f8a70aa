"""Defines the ops of target `cpu`: torch_npu's schemas with CPU kernels, fake kernels and autograd."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.constraints import require
from fusionkit.npu.kernels import (
    activation,
    attention,
    cast,
    geglu,
    grouped_matmul,
    masked_softmax,
    modulation,
    moe,
    norm,
    rotary,
)
from fusionkit.npu.kernels.op_kernel import OpKernel, register_gradients
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS, SEEDED, bind, parsed_schema

NPU_KERNELS: tuple[OpKernel, ...] = (
    *norm.KERNELS,
    *rotary.KERNELS,
    *activation.KERNELS,
    *cast.KERNELS,
    *geglu.KERNELS,
    *masked_softmax.KERNELS,
    *attention.KERNELS,
    *grouped_matmul.KERNELS,
    *moe.KERNELS,
)
KIT_KERNELS: tuple[OpKernel, ...] = modulation.KERNELS

_new_library: Any = torch.library.Library  # torch leaves its methods without types


def define_cpu_ops() -> list[Any]:
    """Define torch.ops.npu.* and torch.ops.fusionkit.*, which exist as long as the returned libraries.

    Raises MisuseError, with nothing defined, if one of the npu:: ops exists already.
    """
    defined = sorted(name for name in SCHEMAS if _is_defined(name))
    if defined:
        imported = sys.modules.get("torch_npu") is not None
        owner = "torch_npu was imported" if imported else "another package defined it"
        raise MisuseError(
            f"target cpu: npu::{defined[0]} exists already in this process ({owner});"
            " start a new process and choose the target before anything else"
        )
    libraries: list[Any] = []
    try:
        libraries.append(_define("npu", SCHEMAS, NPU_KERNELS, ["CPU"]))
        libraries.extend(define_kit_ops())
    except RuntimeError as error:
        for library in libraries:
            library._destroy()
        raise MisuseError(
            f"target cpu: the dispatcher refuses an op ({str(error).splitlines()[0]}); start a new process"
        ) from error
    return libraries


def add_cpu_kernels() -> list[Any]:
    """Register the CPU reference kernels for torch_npu's own ops.

    Skips ops that this torch_npu lacks, and ops that have a CPU kernel.
    """
    library: Any = _new_library("npu", "IMPL")
    for kernel in NPU_KERNELS:
        name = f"npu::{kernel.op}"
        if not _is_defined(kernel.op) or torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):
            continue
        library.impl(kernel.op, _checked(kernel), "CPU")
    return [library]


def define_kit_ops() -> list[Any]:
    """Define torch.ops.fusionkit.* for every target: compositions of aten ops, on any device."""
    return [_define("fusionkit", KIT_SCHEMAS, KIT_KERNELS, ["CPU", "PrivateUse1"])]


def _is_defined(op: str) -> bool:
    """Whether npu:: has op, a name with optional overload (`op.overload`)."""
    packet, _, overload = op.partition(".")
    return hasattr(getattr(torch.ops.npu, packet, None), overload or "default")


def _define(namespace: str, schemas: dict[str, str], kernels: Iterable[OpKernel], keys: Iterable[str]) -> Any:
    # FRAGMENT, not DEF: other packages, and capsules, may add ops to the same namespace.
    library: Any = _new_library(namespace, "FRAGMENT")
    try:
        for kernel in kernels:
            library.define(schemas[kernel.op], tags=_tags(kernel.op))
            for key in keys:
                library.impl(kernel.op, _checked(kernel), key)
            name = f"{namespace}::{kernel.op}"
            by_name = functools.partial(_by_name, kernel.op)
            torch.library.register_fake(name, by_name(kernel.fake), lib=library)
            register_gradients(library, name, parsed_schema(kernel.op), kernel.autograd, by_name)
    except RuntimeError:
        library._destroy()
        raise
    return library


def _tags(op: str) -> tuple[torch.Tag, ...]:
    seeded = (torch.Tag.nondeterministic_seeded,) if op in SEEDED else ()
    return (torch.Tag.pt2_compliant_tag, *seeded)


def _by_name(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap function to receive every argument of op's schema by name (the dispatcher drops defaults)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(**bind(op, *args, **kwargs))

    return call


def _checked(kernel: OpKernel) -> Callable[..., Any]:
    """The CPU kernel with a check of the constraints before it.

    Autocast is disabled inside: as in a device kernel, it must not affect the aten ops of the implementation.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        require(kernel.op, *args, **kwargs)
        with torch._C._DisableAutocast():
            return kernel.cpu(**bind(kernel.op, *args, **kwargs))

    return call
