"""Activation of npu-dry: prepare the cache, import torch_npu on the stand-in, refuse every computation."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from fusionkit.npu.dry.cache import Prepared, Tell, prepare
from fusionkit.npu.dry.first_start import try_first_start
from fusionkit.npu.dry.refusal import keep_no_constants, refuse_computation
from fusionkit.npu.dry.starting import quiet, start
from fusionkit.npu.order import refuse_late_activation


@dataclass(frozen=True, slots=True)
class Activated:
    """The imported torch_npu and the libraries that keep its kernels from computing."""

    module: types.ModuleType
    prepared: Prepared
    libraries: tuple[Any, ...]


def activate(tell: Tell = lambda _: None) -> Activated:
    """Prepare the cache, load the stand-in, import torch_npu and refuse every computation.

    The first start of a stand-in happens in a child process. Raises MisuseError if activation comes too late in this
    process, is not possible on this machine, or aborts the child process.
    """
    refuse_late_activation("npu-dry")
    prepared = prepare(tell)
    try_first_start(prepared, tell)
    with quiet():
        module = start(prepared)
    keep_no_constants()
    return Activated(module, prepared, tuple(refuse_computation()))
