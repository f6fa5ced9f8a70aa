"""Tiny wheels of torch_npu that only document: made as files, nothing of them can be imported or run."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

# Each Python file of the wheel would leave this file behind if it were run.
TRACE = "it-ran"
_RUNS = f"open({TRACE!r}, 'w').close()\nraise SystemExit('the wheel was run')\n"

DOCS = (
    _RUNS
    + '''
def _add_torch_npu_docstr(method, docstr):
    pass

_add_torch_npu_docstr(
    "npu_rms_norm",
    """
torch_npu.npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)
功能描述
归一化的旧文档。
"""
)
_add_torch_npu_docstr("npu_toy_scale", """
Scales a tensor, $\\\\begin{x}$ and \\begin{y}.

参数说明：
self (Tensor): any shape.
factor (float): default 2.0.
输出说明
A tensor.

Atlas A3 also.
约束说明：self 不能为空。
支持的型号:
Atlas A2
调用示例:
out = torch_npu.npu_toy_scale(x)
参数 of an example is no heading
""")
_add_torch_npu_docstr(
    "npu_rms_norm",
    """
torch_npu.npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)
功能描述
归一化的新文档。
""",
)
_add_torch_npu_docstr(some_name, "not a literal name")
print("npu_printed", "not a registration")
'''
)

ATB_DOCS = (
    _RUNS
    + '''
def _add_torch_npu_atb_docstr(method, docstr):
    pass

def register():
    _add_torch_npu_atb_docstr("npu_toy_cache", """
torch_npu.atb.npu_toy_cache(x) -> Tensor
功能描述：缓存。
""")
'''
)

TABLE = """backend: NPU
custom:
- device_check: NoCheck
  func: npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)
  impl_ns: op_api
- func: npu_toy_scale(Tensor self, float factor=2.0) -> Tensor
- func: npu_toy_scale.out(Tensor self, float factor=2.0, *, Tensor(a!) out) -> Tensor(a!)
- func: 'npu_table_only(Tensor self, str mode="a: b") -> Tensor'
supported:
- func: add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor
"""

STRINGS = (
    b"npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    b"npu_toy_scale(Tensor input, float factor=2.0) -> Tensor",
    b"npu_toy_scale.out(Tensor input, float factor=2.0, *, Tensor[] out) -> Tensor",
    b"npu_library_only(Tensor? x, int[2] pad=[0, 0], *, int[]? sizes=None) -> Tensor[]",
    # no schemas:
    b"load.out(Tensor cache, int num_kensor block_tables, b_npu_toy(Tensonsor(a!) C) -> (or key",
    b"operator()(const Tensor &) -> Tensor",
    b"expected f(x) -> y",
)

OPTIM = {
    "torch_npu/optim/__init__.py": _RUNS + "from .adam import ToyAdam, _Hidden\nfrom math import pi\n",
    "torch_npu/optim/adam.py": _RUNS
    + '''
class ToyAdam(Base):
    r"""An optimizer.

    Args:
        params (iterable): what to step
    Returns:
        nothing
    """

    def __init__(self, params, lr=1e-3, *, fused=True):
        pass

class _Hidden:
    pass
''',
    "torch_npu/contrib/__init__.py": "from .function import toy_roll as toy_roll, absent\n",
    "torch_npu/contrib/function/__init__.py": "from .roll import toy_roll\n",
    "torch_npu/contrib/function/roll.py": "def toy_roll(x, shift=1):\n    return x\n",
}

FILES: dict[str, bytes] = {
    "torch_npu/__init__.py": _RUNS.encode(),
    "torch_npu/version.py": b"__version__ = '9.8.7'\n",
    "torch_npu/_op_plugin_docs.py": DOCS.encode(),
    "torch_npu/op_plugin/atb/_atb_api_docs.py": ATB_DOCS.encode(),
    "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml": TABLE.encode(),
    "torch_npu/lib/libtorch_npu.so": b"\x7fELF\0" + b"\0".join(STRINGS) + b"\0\x01\x02",
    "torch_npu/lib/libop_plugin_atb.so": b"\0\0npu_toy_cache(Tensor x) -> Tensor\0",
    **{name: text.encode() for name, text in OPTIM.items()},
}


def make_doc_wheel(folder: Path, changed: Mapping[str, bytes | None] | None = None) -> Path:
    """A wheel of FILES, some of them with other contents or, for None, left out."""
    path = folder / "torch_npu-9.8.7-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**FILES, **(changed or {})}.items():
            if data is not None:
                archive.writestr(name, data)
    return path


def unpack_doc_wheel(folder: Path) -> Path:
    """FILES as a folder."""
    for name, data in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return folder
