"""Graph arguments as JSON and back: literals exactly, nodes by name, everything else refused.

A literal that JSON cannot express is an object with one key that names its kind: {"node": "add_3"},
{"dtype": "bfloat16"}, {"device": "cpu"}, {"layout": "strided"}, {"memory_format": "..."}, {"float": "inf"},
{"complex": [re, im]}, {"tuple": [...]}, {"slice": [a, b, c]}, {"dict": {...}}, {"size": "s0*2"} (a symbolic size).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from fusionkit.capture.foreign import device_name, npu_device
from fusionkit.errors import MisuseError

_LAYOUTS = {"strided": torch.strided, "sparse_coo": torch.sparse_coo, "jagged": torch.jagged}
_MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


def encode(value: Any) -> Any:
    """`value` of an FX argument as JSON. Raises MisuseError for what a capsule cannot hold."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): encode(item) for key, item in value.items()}}
    if isinstance(value, slice):
        return {"slice": [encode(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return _encode_torch(value)


def _encode_torch(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": device_name(value)}
    if isinstance(value, torch.layout):
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {"size": str(value)}
    raise MisuseError(f"a capsule cannot hold an argument of type {type(value).__name__}")


def decode(value: Any, node: Callable[[str], torch.fx.Node], size: Callable[[str], Any]) -> Any:
    """The inverse of `encode`; `node` and `size` look up nodes and symbolic sizes.

    Raises MisuseError for anything that `encode` does not write.
    """
    if isinstance(value, list):
        return [decode(item, node, size) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise MisuseError(f"not a capsule literal: {value!r}")
    kind, content = next(iter(value.items()))
    if kind == "node":
        return node(content)
    if kind == "size":
        return size(content)
    if kind == "tuple":
        return tuple(decode(item, node, size) for item in content)
    if kind == "dict":
        return {key: decode(item, node, size) for key, item in content.items()}
    if kind == "slice":
        return slice(*(decode(part, node, size) for part in content))
    return _decode_torch(kind, content)


def _decode_torch(kind: str, content: Any) -> Any:
    if kind == "dtype":
        dtype = getattr(torch, content, None)
        if isinstance(dtype, torch.dtype):
            return dtype
    if kind == "device":
        return npu_device(content) if str(content).startswith("npu") else torch.device(content)
    if kind == "layout" and content in _LAYOUTS:
        return _LAYOUTS[content]
    if kind == "memory_format" and content in _MEMORY_FORMATS:
        return _MEMORY_FORMATS[content]
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "complex":
        return complex(*content)
    raise MisuseError(f"not a capsule literal: {{{kind!r}: {content!r}}}")
