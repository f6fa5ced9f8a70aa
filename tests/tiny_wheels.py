"""Tiny libraries and torch_npu wheels, compiled by the machine's C compiler, for the tests of npu-dry's parts."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from dry_processes import unavailable
from packaging.tags import sys_tags
from packaging.version import Version

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.standin import compiler

RELEASE = ".".join(map(str, Version(torch.__version__).release[:3]))
TAG = str(next(iter(sys_tags())))


def make_library(path: Path, source: str, *, soname: str | None = None, needs: Sequence[Path] = ()) -> Path:
    """A shared library; `needs` are libraries that it is linked with. Skips where there is no C compiler."""
    try:
        command = compiler()
    except MisuseError as error:
        unavailable(str(error))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.with_suffix(".c")
    text.write_text(source, "utf-8")
    words = [*command, "-shared", "-fPIC", "-o", str(path), str(text), *map(str, needs)]
    words += [f"-Wl,-soname,{soname or path.name}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    subprocess.run(words, check=True, capture_output=True)
    text.unlink()
    return path


def make_package(folder: Path) -> Path:
    """A package torch_npu: its extension loads libtorch_npu, which needs a library that this machine lacks."""
    package = folder / "torch_npu"
    absent = make_library(
        folder / "libabsent_acl.so", "int aclInit(void) { return 0; } int aclopExecute(void) { return 0; }"
    )
    unused = make_library(folder / "libabsent_other.so", "int other(void) { return 0; }")
    library = make_library(
        package / "lib" / "libtorch_npu.so",
        """
        #include <string.h>
        extern int aclInit(void), aclopExecute(void);
        extern void *THPVariableClass;
        const char *first = "first", *looked_up[] = {"aclrtMemcpy", "aclnnAdd"};
        int start(const char *text) {
            return aclInit() + aclopExecute() + (THPVariableClass != 0) + (int)strlen(text);
        }
        """,
        needs=[absent],
    )
    make_library(
        package / "lib" / "libunreached.so",
        "int other(void); int f(void) { return other(); }",
        needs=[unused],
    )
    make_library(
        package / "_C.so",
        "int start(const char *); int PyInit__C(void) { return start(0); }",
        needs=[library],
    )
    absent.unlink()
    unused.unlink()
    (package / "__init__.py").write_text(f"__version__ = '{RELEASE}'\n", "utf-8")
    return package


def make_wheel(folder: Path, *, version: str = RELEASE, tag: str = TAG, text: str = "") -> Path:
    """A wheel of `make_package`, with `text` in a module of its own so that two of a name can differ."""
    content = folder / f"content-{version}"
    package = make_package(content)
    (package / "text.py").write_text(text, "utf-8")
    files = {
        path.relative_to(content).as_posix(): path.read_bytes()
        for path in sorted(content.rglob("*"))
        if path.is_file()
    }
    information = f"torch_npu-{version}.dist-info"
    files[f"{information}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: torch-npu\nVersion: {version}\n".encode()
    )
    files[f"{information}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{information}/RECORD"] = "\r\n".join([*rows, f"{information}/RECORD,,", ""]).encode()
    wheel = folder / f"torch_npu-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
