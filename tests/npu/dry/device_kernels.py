"""Every kernel and every function of the dry device, one by one, for `device_session.py`, which activates first."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import torch
from dry_processes import raised

import fusionkit.npu.dry.refusal
from fusionkit.npu.dry.behaviours import BEHAVIOURS
from fusionkit.npu.dry.cache_folder import STANDINS, cache_root
from fusionkit.npu.dry.symbols import read_library

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
_REFUSAL = Path(fusionkit.npu.dry.refusal.__file__).name
_KERNEL = re.compile(r"^PrivateUse1: registered at (\S+)", re.MULTILINE)


def registered_names() -> list[str]:
    """Each op that has a kernel on the device, `namespace::op.overload`."""
    return sorted(torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"))


def kernels_of_others() -> list[str]:
    """The ops whose kernel in force is not one of the refusals."""

    def is_refusal(name: str) -> bool:
        found = _KERNEL.search(torch._C._dispatch_dump(name))
        return found is not None and Path(found[1].rpartition(":")[0]).name == _REFUSAL

    return [name for name in registered_names() if not is_refusal(name)]


def call_every_kernel(names: list[str]) -> dict[str, Any]:
    """Call the device's kernel of each op with arguments made from its schema; those that cannot be are named."""
    outcomes: dict[str, Any] = {}
    for name in names:
        overload = _overload(name)
        if overload is None:  # an implementation without an op: nobody can call it
            continue
        try:
            arguments, options = _arguments(overload._schema)
        except KeyError as unknown:
            outcomes[name] = ["no argument", str(unknown)]
            continue
        outcomes[name] = raised(
            lambda op=overload, a=arguments, o=options: op.redispatch(_KEYS, *a, **o)  # type: ignore[misc]
        )
    return outcomes


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")
    except AttributeError:
        return None


def _arguments(schema: Any) -> tuple[list[Any], dict[str, Any]]:
    tensor = torch.ones(2, 2).to("npu")
    made = {
        "Tensor": tensor,
        "List[Tensor]": [tensor],
        "List[Optional[Tensor]]": [tensor],
        "List[List[Tensor]]": [[tensor]],
        "number": 1,
        "int": 1,
        "float": 1.0,
        "bool": True,
        "str": "x",
        "Device": torch.device("npu"),
        "List[int]": [1],
        "List[float]": [1.0],
        "List[number]": [1],
        "List[bool]": [True] * 4,
        "Storage": tensor.untyped_storage(),
    }
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.has_default_value():
            continue
        kind = str(argument.type)
        value = None if kind.startswith("Optional[") else made[kind]
        if kind == "List[bool]" and argument.N:
            value = [True] * argument.N
        if argument.kwarg_only:
            options[argument.name] = value
        else:
            arguments.append(value)
    return arguments, options


def standin_functions() -> dict[str, Any]:
    """What each function of the loaded stand-in answers that is not in the table of behaviours, and each kind
    of copy: 0 host to host, 1 host to device, 2 device to host, 3 device to device, 4 by address.
    """
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    folder = str(cache_root() / STANDINS)
    (path,) = {line.split()[-1] for line in lines if folder in line and line.endswith("libascendcl.so")}
    library = ctypes.CDLL(path)
    names = sorted(name for name in read_library(Path(path)).defined if not name.startswith("_"))
    target, source = ctypes.create_string_buffer(b"target"), ctypes.create_string_buffer(b"source")
    sizes = ctypes.c_size_t(6)
    return {
        "answers": {name: getattr(library, name)() for name in names if name not in BEHAVIOURS},
        "behaving": [name for name in names if name in BEHAVIOURS],
        "copies": {
            name: [getattr(library, name)(target, sizes, source, sizes, kind, None) for kind in range(6)]
            for name in ("aclrtMemcpy", "aclrtMemcpyAsync")
        },
        "too large": library.aclrtMemcpy(target, ctypes.c_size_t(1), source, sizes, 1),
        "copied": target.value.decode(),
        "unknown": hasattr(library, "aclnnAdd"),
    }
