"""The dynamic section of a shared library: its name, needed libraries and symbols."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from fusionkit.errors import MisuseError


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
