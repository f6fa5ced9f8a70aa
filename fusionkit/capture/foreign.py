"""Stand-ins for what a capsule names and this process lacks: ops without their library, npu without torch_npu.

No stand-in computes. A missing op is defined from its schema, without kernels. Device npu is torch's PrivateUse1
slot, which torch_npu renames to npu; without torch_npu the slot keeps its own name, and fake tensors on it
take the same dispatch paths. (On device meta torch's pattern matcher skips every node:
torch._inductor.lowering.unsupported_input_tensor.) Definitions and slot are per process, as torch.ops is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import torch
import torch.fx

from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target, use_target

NPU_SLOT = "privateuseone"

# torch drops an op when its Library object dies, and a guard when its Python object does.
_KEPT: list[Any] = []
_COMPOSITES: dict[Any, Any] = {}


def define_missing_ops(schemas: Mapping[str, str]) -> list[str]:
    """Define each op that this process lacks from its schema, without kernels; returns one note for each.

    Ops of the kit's own targets come from the current target (cpu if none is active). Raises MisuseError for an
    op of torch itself that this torch lacks, RuntimeError for an invalid schema.
    """
    if any(name.startswith(("npu.", "fusionkit.")) for name in schemas):
        use_target(current_target() or "cpu")
    notes = []
    for name, schema in schemas.items():
        namespace, packet, overload = name.split(".")
        known = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if known is not None:
            if torch._C.parse_schema(schema) != known._schema:
                notes.append(f"op {name} has another schema here: {known._schema}")
            continue
        if namespace in ("aten", "prims", "prim"):
            raise MisuseError(f"op {name} is unknown to torch {torch.__version__}")
        library = torch.library.Library(namespace, "FRAGMENT")
        _KEPT.append(library)
        library.define(schema.partition("::")[2])
        notes.append(f"op {name} defined from its schema, without kernels")
    return notes


def npu_device(text: str) -> torch.device:
    """The device that `npu` or `npu:0` stands for here: torch_npu's own, else the bare PrivateUse1 slot."""
    backend = torch._C._get_privateuse1_backend_name()
    if backend == NPU_SLOT:
        _guard_slot()
    return torch.device(f"{backend}:{text.partition(':')[2] or '0'}")


def device_name(device: torch.device) -> str:
    """`npu:0` for the PrivateUse1 slot, whatever its name in this process; any other device's own name."""
    return str(device).replace(NPU_SLOT, "npu")


def keep_composites(nodes: Iterable[torch.fx.Node]) -> None:
    """Keep the composite aten ops of these nodes, those of a capture, undecomposed on the bare PrivateUse1 slot.

    torch_npu has its own kernel for aten.matmul, for example: a linear on npu is traced as t and matmul, elsewhere
    as t, view and mm. A pattern traces as its graph does once the slot has a kernel; that kernel is never called.
    Called before patterns are traced for a graph, since the graph before it may be of another torch_npu.
    """
    if torch._C._get_privateuse1_backend_name() != NPU_SLOT:
        return
    wanted: set[Any] = {node.target for node in nodes if stands_on_slot(node) and _is_composite(node.target)}
    for op in _COMPOSITES.keys() - wanted:
        _COMPOSITES.pop(op)._destroy()
        op._dispatch_cache.clear()
    for op in wanted - _COMPOSITES.keys():
        _COMPOSITES[op] = library = torch.library.Library("aten", "IMPL")
        library.impl(op.name().removeprefix("aten::"), _never, "PrivateUse1")
        op._dispatch_cache.clear()  # an earlier call may have cached its decomposition


def stands_on_slot(node: torch.fx.Node) -> bool:
    """Whether the node's value is a tensor on the bare slot."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == NPU_SLOT


def _is_composite(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    own = has_kernel(op.name(), "PrivateUse1") and op not in _COMPOSITES
    return bool(has_kernel(op.name(), "CompositeImplicitAutograd")) and not own


def _never(*_: Any, **__: Any) -> NoReturn:
    raise MisuseError("a graph read from a capsule holds no values; it cannot be run")


def _guard_slot() -> None:
    """Register the device guard that C++ needs to index fake tensors on the slot; torch_npu has its own."""
    try:
        guard_class: Any = torch._C._acc.DeviceGuard
        register: Any = torch._C._acc.register_python_privateuseone_device_guard
    except AttributeError as error:
        raise MisuseError(
            f"torch {torch.__version__} cannot hold tensors of device npu without torch_npu; use a newer torch"
        ) from error
    if any(isinstance(kept, guard_class) for kept in _KEPT):
        return
    slot = torch._C._autograd.DeviceType.PrivateUse1
    guard = type("NpuSlotGuard", (guard_class,), {"type_": lambda _: slot})()
    register(guard)
    _KEPT.append(guard)
