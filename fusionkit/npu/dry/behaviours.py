"""Behaviours of the stand-in's functions: a literal table. A function outside it fails.

Names and argument lists are those of the public AscendCL headers (acl/acl_base.h, acl_rt.h, acl_op_compiler.h,
acl_prof.h). The functions of the table do bookkeeping only: they initialise, report the device,
allocate handles and host memory, and copy constants of the model from host memory to memory that represents the
device's. None launches a kernel, computes, or copies a value back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

# ACL_ERROR_API_NOT_SUPPORT of acl/acl_base.h: what every other function answers. Not 207000, "feature not
# supported": torch_npu's NPU_CHECK_ERROR (csrc/core/npu/NPUException.h) prints a warning for it and goes on.
REFUSED = 200001
OUT_OF_MEMORY = 207001  # ACL_ERROR_RT_MEMORY_ALLOCATION

# A function of torch that the stand-in overrides for torch_npu. libtorch_npu registers the keys of its allocator's
# configuration when it is loaded; a CUDA build of torch has keys of the same names, and torch aborts on a duplicate
# key. The stand-in gives torch_npu's keys, which are unused there, a separate set.
CONFIGURATION_KEYS = "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig14getMutableKeysB5cxx11Ev"

# torch_npu appends this to the error of a call that failed.
REFUSAL = "npu-dry computes nothing: it shows graphs, shapes and dtypes; use target cpu or npu for values"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One function in C: result type, parameters, body, and the reason why it may succeed."""

    result: str
    parameters: str
    body: str
    why: str

    def definition(self, name: str) -> str:
        """The C function."""
        return f"{self.result} {name}({self.parameters}) {{ {self.body} }}"


def _int(parameters: str, body: str, why: str) -> Behaviour:
    return Behaviour("int", parameters, body, why)


def _each(names: str, behaviour: Behaviour) -> dict[str, Behaviour]:
    return dict.fromkeys(names.split(), behaviour)


def _ok(names: str, why: str) -> dict[str, Behaviour]:
    return _each(names, _int("void", "return 0;", why))


def _past(complete: int) -> Behaviour:
    body = f"*status = {complete}; return 0;"
    return _int("void *event, int *status", body, "nothing was launched, so it is past")


_HANDLE = _int(
    "void **handle", "static int one; *handle = &one; return 0;", "a handle that nothing looks into"
)
_FREE = _int("void *memory", "free(memory); return 0;", "memory goes back")
_ALLOCATE = _int(
    "void **memory, size_t size",
    f"return posix_memalign(memory, 512, size ? size : 512) ? {OUT_OF_MEMORY} : 0;",
    "host memory stands for device memory",
)
_COPY_IN = _int(
    "void *target, size_t room, const void *source, size_t size, int kind",
    f"if (kind != 1) return {REFUSED}; if (size > room) return {REFUSED};"
    " memcpy(target, source, size); return 0;",
    "ACL_MEMCPY_HOST_TO_DEVICE only: a constant of the model goes in, nothing comes back",
)

BEHAVIOURS: Mapping[str, Behaviour] = {
    # start and end
    **_ok("aclInit", "start"),
    **_ok("aclFinalize aclrtResetDevice", "end"),
    **_ok("aclrtSetDevice", "the one device is chosen"),
    **_ok("aclrtSetCurrentContext", "the one context is chosen"),
    "aclrtGetDeviceCount": _int("unsigned *count", "*count = 1; return 0;", "one device"),
    "aclrtGetDevice": _int("int *device", "*device = 0; return 0;", "the one device"),
    "aclrtGetSocName": Behaviour("const char *", "void", "return SOC_NAME;", "the setting"),
    "aclGetRecentErrMsg": Behaviour("const char *", "void", f'return "{REFUSAL}";', "why a call failed"),
    "aclrtGetMemInfo": _int(
        "int kind, size_t *free, size_t *total", "*free = *total = (size_t)64 << 30; return 0;", "64 GiB"
    ),
    # options that CANN stores and that are not read back here
    **_ok("aclrtSetDeviceSatMode aclSetCompileopt aclrtSetSysParamOpt aclrtCtxSetSysParamOpt", "an option"),
    **_ok("aclrtSetOpExecuteTimeOut aclrtSetOpExecuteTimeOutV2 aclrtSetOpWaitTimeout", "an option"),
    **_ok("aclrtSetStreamOverflowSwitch", "an option, of SoCs before Ascend910B"),
    "aclGetCompileoptSize": Behaviour(
        "size_t", "int option", "return 8;", "0 is taken for a failure at first use"
    ),
    "aclGetCompileopt": _int(
        "int option, char *value, size_t size", "if (size) *value = 0; return 0;", "an option, empty"
    ),
    "aclrtGetSysParamOpt": _int("int option, int64_t *value", "*value = 0; return 0;", "an option, off"),
    # handles
    **_each("aclrtGetCurrentContext aclrtCreateStream aclrtCreateStreamWithConfig", _HANDLE),
    **_each("aclrtCreateEventWithFlag aclrtCreateEventExWithFlag", _HANDLE),
    **_ok("aclrtDestroyStream aclrtDestroyStreamForce aclrtDestroyEvent", "a handle goes"),
    # nothing is launched, so events are complete when recorded, and waiting returns at once
    **_ok("aclrtRecordEvent", "past at once"),
    "aclrtQueryEventStatus": _past(1),  # ACL_EVENT_RECORDED_STATUS_COMPLETE
    "aclrtQueryEventWaitStatus": _past(0),  # ACL_EVENT_WAIT_STATUS_COMPLETE
    **_ok("aclrtStreamWaitEvent aclrtSynchronizeEvent", "nothing to wait for"),
    **_ok("aclrtSynchronizeDevice aclrtSynchronizeDeviceWithTimeout", "nothing to wait for"),
    **_ok("aclrtSynchronizeStream aclrtSynchronizeStreamWithTimeout", "nothing to wait for"),
    # memory
    **_each(
        "aclrtMalloc aclrtMallocAlign32",
        replace(_ALLOCATE, parameters=f"{_ALLOCATE.parameters}, int policy"),
    ),
    "aclrtMallocHost": _ALLOCATE,
    **_each("aclrtFree aclrtFreeHost", _FREE),
    "aclrtMemcpy": _COPY_IN,
    "aclrtMemcpyAsync": replace(_COPY_IN, parameters=f"{_COPY_IN.parameters}, void *stream"),
    # an empty std::unordered_set<std::string> as libstdc++ lays it out (bits/hashtable.h, _Hashtable)
    CONFIGURATION_KEYS: Behaviour(
        "void *",
        "void",
        "static struct { void **buckets; size_t bucket_count; void *first; size_t elements; float max_load;"
        " size_t next_resize; void *single_bucket; } keys = {&keys.single_bucket, 1, 0, 0, 1.0f, 0, 0}; return &keys;",
        "the keys of a configuration that is never read",
    ),
    # functions that return a pointer fail by returning null
    **_each(
        "aclCreateTensorDesc aclCreateDataBuffer aclopCreateAttr",
        Behaviour("void *", "void", "return 0;", "fails: no object"),
    ),
    **_each(
        "aclDestroyTensorDesc aclopDestroyAttr aclAppLog",
        Behaviour("void", "void", "return;", "there is no object to take away"),
    ),
}
