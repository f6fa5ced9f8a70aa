"""Real (not fake) work on the dry device, call by call: tables for `device_session.py`, which activates first."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

import fusionkit.npu
from fusionkit.npu.dry.cache import soc_name

NPU = "npu"


def constant(*size: int) -> torch.Tensor:
    """1, 2, 3, ... brought from the host."""
    count = int(np.prod(size))
    return torch.arange(1.0, count + 1).view(size).to(NPU)


def host_memory(tensor: torch.Tensor) -> list[Any]:
    """The bytes that stand for a tensor's device memory, as its dtype and shape say."""
    flat = torch.frombuffer(
        bytearray(ctypes.string_at(tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes())),
        dtype=tensor.dtype,
    )
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset()).tolist()


x = constant(4)
m = constant(2, 2)
image = constant(1, 1, 2, 2)
flag = torch.tensor(True).to(NPU)
number = torch.tensor(3).to(NPU)
z = torch.tensor([1 + 2j]).to(NPU)
sparse = torch.sparse_coo_tensor(torch.tensor([[0]]).to(NPU), x[:1], (2,), check_invariants=False)


def parameter() -> torch.nn.Parameter:
    made = torch.nn.Parameter(constant(4))
    made.grad = x
    return made


def one_worker() -> None:
    if not dist.is_initialized():
        dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)


def collective(call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        one_worker()
        return call()

    return run


def backward_through_views() -> None:
    constant(4).requires_grad_().view(2, 2).expand(3, 2, 2).backward(constant(3, 2, 2))


def compiled_backward() -> None:
    leaf = constant(4).requires_grad_()
    torch.compile(lambda a: a.view(2, 2).expand(3, 2, 2), backend="aot_eager")(leaf).backward(
        constant(3, 2, 2)
    )


def written_to_a_file() -> None:
    with tempfile.TemporaryFile() as file:
        x.untyped_storage()._write_file(file, True, True, 4)


REFUSED: dict[str, Callable[[], Any]] = {
    # the ones every model has
    "full": lambda: torch.full((2,), 3.0, device=NPU),
    "fill_": lambda: constant(2).fill_(1.0),
    "zeros": lambda: torch.zeros(2, device=NPU),
    "zeros_like": lambda: torch.zeros_like(x),
    "ones": lambda: torch.ones(2, device=NPU),
    "arange": lambda: torch.arange(3, device=NPU),
    "eye": lambda: torch.eye(2, device=NPU),
    "randn": lambda: torch.randn(2, device=NPU),
    "rand": lambda: torch.rand(2, device=NPU),
    "randperm": lambda: torch.randperm(2, device=NPU),
    "add": lambda: x + 1,
    "add a host number": lambda: torch.ones(4) + number,
    "matmul": lambda: m @ m,
    "cast": lambda: x.half(),
    "cast and move": lambda: x.to("cpu", torch.float16),
    "in place": lambda: x.add_(1),
    "out=": lambda: torch.add(x, x, out=torch.empty(4, device=NPU)),
    "out= on the host": lambda: torch.add(x, x, out=torch.empty(4)),
    "foreach": lambda: torch._foreach_add([x], [x]),
    "foreach copy out": lambda: torch._foreach_copy_([torch.empty(4)], [x]),
    "cat": lambda: torch.cat([x, x]),
    "index": lambda: x[torch.tensor([0]).to(NPU)],
    "index of the host": lambda: torch.arange(4)[number],
    "setitem": lambda: x.__setitem__(0, 1.0),
    "sum": lambda: x.sum(),
    "softmax": lambda: x.softmax(0),
    "layer norm": lambda: F.layer_norm(x, (4,)),
    "convolution": lambda: F.conv2d(image, image),
    "attention": lambda: F.scaled_dot_product_attention(image, image, image),
    "embedding": lambda: F.embedding(number[None], m),
    "dropout": lambda: F.dropout(x),
    "nn.Linear made on it": lambda: torch.nn.Linear(2, 2, device=NPU),
    "optimizer": lambda: torch.optim.SGD([parameter()], lr=0.1).step(),
    "an op that only the CPU has": lambda: torch.linalg.inv(m),
    "autocast": lambda: torch.autocast(NPU).__enter__() and m @ m,
    "aclnn op": lambda: torch.ops.npu.npu_fusion_attention_v3(x, x, x, 1, "BSH"),
    "npu op": lambda: torch.ops.npu.npu_rms_norm(x, x),
    "npu op of the facade": lambda: fusionkit.npu.torch_npu.npu_swiglu(x),
    "npu op on host and device": lambda: torch.ops.npu.npu_rms_norm(torch.ones(4), x),
    "kit's own op": lambda: torch.ops.fusionkit.layer_norm_scale_shift(x, x, x),
    # values that would come back
    ".cpu()": lambda: x.cpu(),
    ".to(cpu)": lambda: x.to("cpu"),
    ".to(cpu, non_blocking)": lambda: x.to("cpu", non_blocking=True),
    "empty().cpu()": lambda: torch.empty(2, device=NPU).cpu(),
    "view().cpu()": lambda: x.view(torch.int32).T.cpu(),
    ".item()": lambda: number.item(),
    ".tolist()": lambda: x.tolist(),
    "bool()": lambda: bool(flag),
    "int()": lambda: int(number),
    "float()": lambda: float(x[0]),
    "complex()": lambda: complex(z[0]),
    "as a Python index": lambda: [1, 2, 3, 4][number],
    "as a slice bound": lambda: torch.arange(4)[number:],
    "str()": lambda: str(x),
    "format()": lambda: f"{x[0]:.2f}",
    "in": lambda: 1.0 in x,
    "is_nonzero": lambda: torch.is_nonzero(number),
    "equal": lambda: torch.equal(x, x),
    "equal to the host": lambda: torch.equal(x, torch.ones(4)),
    "allclose": lambda: torch.allclose(x, x),
    "assert_close": lambda: torch.testing.assert_close(x, x),
    "nonzero": lambda: x.nonzero(),
    "unique": lambda: x.unique(),
    "copy_ out": lambda: torch.empty(4).copy_(x),
    "copy_ out to pinned memory": lambda: torch.empty(4).pin_memory().copy_(x, non_blocking=True),
    "copy_ inside": lambda: torch.empty(4, device=NPU).copy_(x),
    "_copy_from": lambda: torch.ops.aten._copy_from(x, torch.empty(4)),
    "_copy_from_and_resize": lambda: torch.ops.aten._copy_from_and_resize(x, torch.empty(4)),
    "storage.cpu()": lambda: x.untyped_storage().cpu(),
    "storage.tolist()": lambda: x.untyped_storage().tolist(),
    "storage[0]": lambda: x.untyped_storage()[0],
    "storage.copy_ out": lambda: torch.empty(4).untyped_storage().copy_(x.untyped_storage()),
    "storage.clone()": lambda: x.untyped_storage().clone(),
    "typed storage": lambda: x.storage().tolist(),
    "bytes(storage)": lambda: bytes(x.untyped_storage()),
    "storage to a file": written_to_a_file,
    "torch.save": lambda: torch.save(x, io.BytesIO()),
    "pickle": lambda: pickle.dumps(x),
    "deepcopy": lambda: copy.deepcopy(x),
    "complex parts": lambda: z.imag.cpu(),
    "conjugate": lambda: z.conj().cpu(),
    "sparse values": lambda: sparse._values().cpu(),
    "sparse.cpu()": lambda: sparse.cpu(),
    "sparse to dense": lambda: sparse.to_dense(),
    "zero tensor": lambda: torch._efficientzerotensor((3,), device=NPU).cpu(),
    "dlpack and back": lambda: torch.from_dlpack(x).cpu(),
    # a constant that would have to be laid out anew
    "contiguous": lambda: m.T.contiguous(),
    "clone of a transposed one": lambda: m.T.clone(),
    "clone of an expanded one": lambda: x[:1].expand(4).clone(),
    "clone of a conjugate": lambda: z.conj().clone(),
    "clone to channels last": lambda: constant(1, 2, 2, 2).clone(memory_format=torch.channels_last),
    "to channels last": lambda: constant(1, 2, 2, 2).to(memory_format=torch.channels_last),
    "copy_ into a slice": lambda: torch.empty(2, 2, device=NPU)[:, 0].copy_(torch.ones(2)),
    "copy_ into a negative view": lambda: torch._neg_view(torch.empty(2, device=NPU)).copy_(torch.ones(2)),
    "resize_ that would copy": lambda: constant(4).resize_(1000),
    # reached by other ways than a direct call
    "autograd": backward_through_views,
    "functional autograd": lambda: torch.func.grad(lambda a: a.sum())(x),
    "vmap": lambda: torch.vmap(lambda a: a + 1)(x),
    "jit.trace": lambda: torch.jit.trace(lambda a: a + 1, (x,)),
    "compiled": lambda: torch.compile(lambda a: a + 1, backend="aot_eager")(x),
    "compiled, a new tensor": lambda: torch.compile(
        lambda: torch.ones(2, device=NPU) + 1, backend="aot_eager"
    )(),
    "compiled, backward": compiled_backward,
    # collectives
    "all_reduce": collective(lambda: dist.all_reduce(x)),
    "all_reduce, waited for": collective(lambda: dist.all_reduce(x, async_op=True).wait()),
    "broadcast": collective(lambda: dist.broadcast(x, 0)),
    "all_gather": collective(lambda: dist.all_gather([torch.empty(4, device=NPU)], x)),
    "barrier": collective(lambda: dist.barrier()),
    "DistributedDataParallel": collective(
        lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to(NPU))
    ),
}

# Refused as well, though not by an op: no value, and no zero in place of one.
RAISES: dict[str, Callable[[], Any]] = {
    "numpy()": lambda: x.numpy(),
    "np.array": lambda: np.array(x),
    "np.from_dlpack": lambda: np.from_dlpack(x),
    "memoryview": lambda: memoryview(x),
    "frombuffer": lambda: torch.frombuffer(x, dtype=torch.float32),
    "pin_memory": lambda: x.pin_memory(),
    "set_ into a host tensor": lambda: torch.empty(0).set_(x.untyped_storage(), 0, (4,)),
    "storage.resize_ that would copy": lambda: constant(4).untyped_storage().resize_(10000),
    "elapsed time": lambda: elapsed(torch.npu.Event),
    "elapsed time, torch.Event": lambda: elapsed(lambda **options: torch.Event(NPU, **options)),
    "number of cores": lambda: torch.npu.get_device_properties(0),
    "utilization": lambda: torch.npu.utilization(),
    "process group itself": collective(
        lambda: dist.group.WORLD._get_backend(torch.device(NPU)).allreduce([x]).wait()
    ),
}


def elapsed(event: Callable[..., Any]) -> Any:
    first, second = event(enable_timing=True), event(enable_timing=True)
    first.record()
    second.record()
    return first.elapsed_time(second)


def loaded() -> list[Any]:
    file = io.BytesIO()
    torch.save(torch.arange(4.0), file)
    file.seek(0)
    return host_memory(torch.load(file, map_location=NPU))


def filled(source: torch.Tensor, dtype: torch.dtype = torch.float32, **options: Any) -> list[Any]:
    return host_memory(torch.empty(source.shape, dtype=dtype, device=NPU).copy_(source, **options))


# What works, and the values that then stand in the device's memory.
WORKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "to": (lambda: host_memory(x), [1.0, 2.0, 3.0, 4.0]),
    "to, from pinned memory": (
        lambda: host_memory(torch.arange(2.0).pin_memory().to(NPU, non_blocking=True)),
        [0.0, 1.0],
    ),
    "to, another dtype": (lambda: host_memory(torch.arange(2.0).to(NPU, torch.float16)), [0.0, 1.0]),
    "to, a conjugate": (lambda: host_memory(torch.tensor([1 + 2j]).conj().to(NPU)) == [1 - 2j], True),
    "tensor": (lambda: host_memory(torch.tensor([1.0, 2.0], device=NPU)), [1.0, 2.0]),
    "as_tensor": (lambda: host_memory(torch.as_tensor(np.ones(2), device=NPU)), [1.0, 1.0]),
    "clone": (lambda: host_memory(x.clone()), [1.0, 2.0, 3.0, 4.0]),
    "clone of a part": (lambda: host_memory(x[1:3].clone()), [2.0, 3.0]),
    "clone is another": (lambda: x.clone().data_ptr() != x.data_ptr(), True),
    "to, copy": (lambda: host_memory(x.to(NPU, copy=True)), [1.0, 2.0, 3.0, 4.0]),
    "copy_": (lambda: filled(torch.arange(2.0)), [0.0, 1.0]),
    "copy_, not blocking": (lambda: filled(torch.arange(2.0), non_blocking=True), [0.0, 1.0]),
    "copy_ casts on the host": (lambda: filled(torch.arange(3), torch.float16), [0.0, 1.0, 2.0]),
    "copy_ of a transposed one": (lambda: filled(torch.arange(4.0).view(2, 2).T), [[0.0, 2.0], [1.0, 3.0]]),
    "copy_ expands on the host": (
        lambda: host_memory(torch.empty(3, device=NPU).copy_(torch.full((1,), 7.0))),
        [7.0, 7.0, 7.0],
    ),
    "load": (loaded, [0.0, 1.0, 2.0, 3.0]),
    "nn.Linear moved to it": (lambda: torch.nn.Linear(2, 2).to(NPU).weight.device.type, "npu"),
    "views": (lambda: list(m.T[None].squeeze(0).unbind()[0].expand(3, 2).shape), [3, 2]),
    "complex views": (lambda: list(torch.view_as_real(z).shape), [1, 2]),
    "empty_like": (lambda: list(torch.empty_like(m).shape), [2, 2]),
    "resize_ of an empty one": (lambda: list(torch.empty(0, device=NPU).resize_(3).shape), [3]),
    "resize_ to a smaller one": (lambda: host_memory(constant(4).resize_(2))[:2], [1.0, 2.0]),
    "set_": (lambda: host_memory(torch.empty(0, device=NPU).set_(x)), [1.0, 2.0, 3.0, 4.0]),
    "dlpack": (lambda: torch.from_dlpack(x).device.type, "npu"),
    "to meta": (lambda: x.to("meta").device.type, "meta"),
    "pinned memory of the host": (lambda: torch.arange(2.0).pin_memory().tolist(), [0.0, 1.0]),
    "autograd of views alone": (
        lambda: torch.autograd.grad((a := constant(4).requires_grad_()).view(2, 2), a, m)[0].device.type,
        "npu",
    ),
    "compiled views alone": (
        lambda: list(torch.compile(lambda a: a.view(2, 2), backend="aot_eager")(x).shape),
        [2, 2],
    ),
    "npu op on the host": (
        lambda: torch.ops.npu.npu_swiglu(torch.tensor([0.0, 2.0, 3.0, 4.0]))[0].item(),
        0.0,
    ),
    "synchronize": (lambda: torch.npu.synchronize(), None),
    "an event passes": (lambda: (event := torch.npu.Event()).record() or event.query(), True),
    "stream": (lambda: torch.npu.current_stream().synchronize(), None),
    "seed": (lambda: torch.npu.manual_seed_all(3), None),
    "name": (lambda: torch.npu.get_device_name(0), soc_name()),
    "deepcopy of a module": (lambda: copy.deepcopy(torch.nn.Linear(2, 2).to(NPU)).weight.device.type, "npu"),
}
