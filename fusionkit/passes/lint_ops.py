"""The lint rules of custom ops: a fake kernel, and a schema that declares every mutated argument."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.errors import FusionKitError
from fusionkit.npu.target import current_device
from fusionkit.passes.lint_tracing import line_of
from fusionkit.passes.registering import PatternClass, bind_arguments, fake_like, name_of, real_inputs
from fusionkit.passes.tracing import CalledOps
from fusionkit.pattern_files.lint_rules import Finding, finding
from fusionkit.pattern_files.time_limit import own_code

# Namespaces of torch, torch_npu and the kit, whose ops are not linted.
_KNOWN = ("aten", "prims", "prim", "npu", "fusionkit", "profiler", "inductor")


def lint_ops(pattern: PatternClass, scalars: Mapping[str, Any]) -> list[Finding]:
    """Findings for the custom ops that pattern and replacement call.

    Fake kernels are looked up in the registry. Mutations are observed by running the op once, on small random CPU
    tensors, if it has a CPU kernel. Errors of the functions themselves are left to other rules.
    """
    findings: list[Finding] = []
    for method in ("replacement", "pattern"):
        function = getattr(pattern, method)
        line = line_of(function)
        ops = _custom_ops(pattern, function, scalars)
        bare = [op for op in ops if not has_fake_kernel(op)]
        findings += [
            finding("no_fake_kernel", line, f"{name_of(pattern)}: {method} calls {op}") for op in bare
        ]
        if ops:
            findings += [
                finding("unannotated_mutation", line, f"{name_of(pattern)}: {text}")
                for text in _unannotated(pattern, function, scalars)
            ]
    return list(dict.fromkeys(findings))


def has_fake_kernel(op: torch._ops.OpOverload) -> bool:
    """Whether an op runs on fake tensors: by a fake kernel, a Meta kernel or a composite kernel."""
    name = op.name()
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    if any(
        has_kernel(name, key) for key in ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    ):
        return True
    entry = torch._library.simple_registry.singleton.find(op._schema.name)
    return entry.fake_impl.kernel is not None


def _custom_ops(pattern: PatternClass, function: Any, scalars: Mapping[str, Any]) -> list[Any]:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), CalledOps() as called:
        tensors = [fake_like(tensor, current_device()) for tensor in pattern.inputs()]
        _run(pattern, function, scalars, tensors)
    return [op for op in dict.fromkeys(called.ops) if op.namespace not in _KNOWN]


class _Writes(TorchDispatchMode):
    """Compares the tensor arguments of each custom op before and after the call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.problems: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace in _KNOWN:
            return func(*args, **(kwargs or {}))
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | dict(kwargs or {})
        marked = {
            a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
        }
        copies = {name: _copies(value) for name, value in given.items() if name not in marked}
        result = func(*args, **(kwargs or {}))
        for name, before in copies.items():
            after = [leaf for leaf in pytree.tree_leaves(given[name]) if isinstance(leaf, torch.Tensor)]
            if any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)):
                self.problems.append(f"{func} writes into its argument '{name}'")
        return result


def _copies(value: Any) -> list[torch.Tensor]:
    return [leaf.clone() for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _unannotated(pattern: PatternClass, function: Any, scalars: Mapping[str, Any]) -> list[str]:
    try:
        tensors = real_inputs(pattern, 0)
    except FusionKitError:  # inputs that cannot be drawn at random
        return []
    writes = _Writes()
    with torch.no_grad(), writes:
        _run(pattern, function, scalars, tensors)
    return writes.problems


def _run(
    pattern: PatternClass, function: Any, scalars: Mapping[str, Any], tensors: Sequence[torch.Tensor]
) -> None:
    """Call the function and ignore its errors, which other rules report."""
    with contextlib.suppress(FusionKitError), own_code(f"pattern {name_of(pattern)}"):
        function(*bind_arguments(pattern, tensors, scalars).values())
