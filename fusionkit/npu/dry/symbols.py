"""The symbols of CANN that a torch_npu wheel needs, derived from the dynamic sections of the wheel's own libraries."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fusionkit.errors import MisuseError

_TORCH_FOLDER = Path(torch.__file__).parent / "lib"
_TORCH_LIBRARIES = ("libtorch_python.so", "libtorch.so", "libtorch_cpu.so", "libc10.so")
_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp)|ld-linux[\w-]*)\.so(\.\d+)*")
_NAME = re.compile(rb"(?<=\0)[A-Za-z_]\w{3,80}(?=\0)")


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """The dynamic section of an ELF file; weak references are left out, they may stay unresolved."""

    path: Path
    soname: str
    needed: frozenset[str]
    undefined: frozenset[str]
    defined: frozenset[str]


def read_library(path: Path) -> SharedLibrary:
    """Read a shared library. Raises MisuseError if it is no ELF file."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            soname, needed = path.name, set()
            for tag in _section(elf, ".dynamic", path).iter_tags():
                if tag.entry.d_tag == "DT_NEEDED":
                    needed.add(str(tag.needed))
                elif tag.entry.d_tag == "DT_SONAME":
                    soname = str(tag.soname)
            undefined, defined = set(), set()
            for symbol in _section(elf, ".dynsym", path).iter_symbols():
                if symbol["st_shndx"] != "SHN_UNDEF":
                    defined.add(str(symbol.name))
                elif symbol.name and symbol["st_info"]["bind"] != "STB_WEAK":
                    undefined.add(str(symbol.name))
    except (OSError, ELFError) as error:
        raise MisuseError(f"{path}: not a shared library ({error})") from error
    return SharedLibrary(path, soname, frozenset(needed), frozenset(undefined), frozenset(defined))


def _section(elf: Any, name: str, path: Path) -> Any:
    section = elf.get_section_by_name(name)
    if section is None:
        raise MisuseError(f"{path}: not a shared library (it has no section {name})")
    return section


@dataclass(frozen=True, slots=True)
class WantedSymbols:
    """What the stand-in must provide: `sonames` of the absent libraries, `linked` symbols that the loader must resolve,
    `named` strings of the wheel's libraries, which include the names looked up at run time.
    """

    sonames: tuple[str, ...]
    linked: tuple[str, ...]
    named: frozenset[str]


def wanted_symbols(package: Path) -> WantedSymbols:
    """Read the libraries that the extension module of an unpacked torch_npu `package` loads.

    A symbol is wanted when neither these libraries nor the running torch, Python or the C library have it.
    Raises MisuseError when the package holds no extension module.
    """
    libraries = _loaded_with_extension(package)
    undefined = {symbol for library in libraries for symbol in library.undefined}
    defined = {symbol for library in libraries for symbol in library.defined}
    providers = [ctypes.CDLL(None), *(ctypes.CDLL(str(_TORCH_FOLDER / name)) for name in _TORCH_LIBRARIES)]
    linked = sorted(
        name for name in undefined - defined if not any(hasattr(provider, name) for provider in providers)
    )
    needed = {name for library in libraries for name in library.needed}
    absent = sorted(needed - {library.soname for library in libraries} - _present(needed))
    named = frozenset(
        name.decode() for library in libraries for name in _NAME.findall(library.path.read_bytes())
    )
    return WantedSymbols(tuple(absent), tuple(linked), named)


def _loaded_with_extension(package: Path) -> list[SharedLibrary]:
    """The extension module and the package's libraries that it needs, directly or indirectly."""
    extensions = sorted(package.glob("_C*.so"))
    if not extensions:
        raise MisuseError(
            f"{package}: no _C extension module in it, so it is no torch_npu for this interpreter"
        )
    own = {library.soname: library for library in map(read_library, sorted(package.glob("lib/*.so")))}
    libraries = [read_library(extensions[0])]
    waiting = list(libraries[0].needed)
    while waiting:
        library = own.pop(waiting.pop(), None)
        if library is not None:
            libraries.append(library)
            waiting.extend(library.needed)
    return libraries


def _present(names: Iterable[str]) -> set[str]:
    """The library names that are not CANN's: torch's own, the system's, those already loaded.

    No library is opened for this, so that an installed CANN is not loaded.
    """
    maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    loaded = {Path(line.split()[-1]).name for line in maps if line.count("/")}
    return {n for n in names if n in loaded or (_TORCH_FOLDER / n).is_file() or _SYSTEM.fullmatch(n)}
