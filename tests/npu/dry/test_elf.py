"""Reading what a shared library asks of others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tiny_wheels import make_library

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.standin import compiler
from fusionkit.npu.dry.symbols import SharedLibrary, read_library

OUTER = """
extern int inner(void), nowhere(void), maybe(void) __attribute__((weak));
static int hidden(void) { return 1; }
int outer(void) { return inner() + hidden() + (maybe ? maybe() : 0); }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elf")


@pytest.fixture(scope="module")
def outer(folder: Path) -> SharedLibrary:
    inner = make_library(folder / "libinner.so", "int inner(void) { return 0; }", soname="libinner.so.1")
    return read_library(make_library(folder / "libouter.so", OUTER, needs=[inner]))


def test_the_name_is_the_soname_and_the_file_name_without_one(outer: SharedLibrary, folder: Path) -> None:
    assert outer.soname == "libouter.so"
    assert read_library(folder / "libinner.so").soname == "libinner.so.1"
    bare = folder / "libbare.so"
    (folder / "bare.c").write_text("int bare(void) { return 0; }", "utf-8")
    subprocess.run([*compiler(), "-shared", "-o", bare, folder / "bare.c"], check=True)
    assert read_library(bare).soname == "libbare.so"


def test_needed_are_sonames_as_the_loader_looks_for_them(outer: SharedLibrary) -> None:
    assert "libinner.so.1" in outer.needed
    assert "libinner.so" not in outer.needed


def test_undefined_are_the_strong_references(outer: SharedLibrary) -> None:
    assert "inner" in outer.undefined
    assert not {"maybe", "outer", "hidden", "nowhere"} & outer.undefined


def test_defined_are_the_exported_symbols(outer: SharedLibrary) -> None:
    assert "outer" in outer.defined
    assert not {"inner", "maybe", "hidden"} & outer.defined


def test_what_is_no_shared_library_is_refused_in_one_line(outer: SharedLibrary, folder: Path) -> None:
    whole = outer.path.read_bytes()
    (folder / "empty.so").write_bytes(b"")
    (folder / "text.so").write_text("INPUT(libc.so.6)\n")  # a linker script, as libc.so is one
    for number, length in enumerate((3, 20, 70, len(whole) // 2, len(whole) - 100)):
        (folder / f"cut{number}.so").write_bytes(whole[:length])
    (folder / "object.c").write_text("int f(void) { return 0; }", "utf-8")
    subprocess.run([*compiler(), "-c", "-o", folder / "object.so", folder / "object.c"], check=True)
    names = ["absent", "empty", "text", "object", *(f"cut{number}" for number in range(5))]
    for name in names:
        with pytest.raises(MisuseError) as caught:
            read_library(folder / f"{name}.so")
        text = str(caught.value)
        assert text.startswith(f"{folder / name}.so: not a shared library (")
        assert "\n" not in text
