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
from fusionkit.passes.tracing import CalledOps, named_arguments, written_arguments
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
        ops = _custom_ops(pattern, function, scalars)
        bare = [f"{method} calls {op}" for op in ops if not _has_fake_kernel(op)]
        writes = _unannotated(pattern, function, scalars) if ops else []
        for rule, texts in (("no_fake_kernel", bare), ("unannotated_mutation", writes)):
            findings += [finding(rule, line_of(function), f"{name_of(pattern)}: {text}") for text in texts]
    return list(dict.fromkeys(findings))


def _has_fake_kernel(op: torch._ops.OpOverload) -> bool:
    """Whether an op runs on fake tensors: by a fake kernel, a Meta kernel or a composite kernel."""
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in keys):
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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _KNOWN:
            return func(*args, **(kwargs or {}))
        marked = written_arguments(func)
        pairs = [
            (name, leaf, leaf.clone())
            for name, value in named_arguments(func, args, kwargs).items()
            for leaf in pytree.tree_leaves(value)
            if name not in marked and isinstance(leaf, torch.Tensor)
        ]
        result = func(*args, **(kwargs or {}))
        changed = dict.fromkeys(name for name, leaf, before in pairs if not torch.equal(leaf, before))
        self.problems += [f"{func} writes into its argument '{name}'" for name in changed]
        return result


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
