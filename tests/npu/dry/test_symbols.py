"""Which symbols and libraries the stand-in has to be, derived from a package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_wheels import make_package

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.symbols import WantedSymbols, wanted_symbols


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def wanted(package: Path) -> WantedSymbols:
    return wanted_symbols(package)


def test_the_absent_library_behind_the_extension_is_stood_in_for(wanted: WantedSymbols) -> None:
    assert wanted.sonames == ("libabsent_acl.so",)


def test_only_what_nobody_else_has_is_wanted(wanted: WantedSymbols) -> None:
    # strlen is the C library's, THPVariableClass is torch's, start is the package's own
    assert wanted.linked == ("aclInit", "aclopExecute")


def test_names_that_are_looked_up_at_run_time_are_seen(wanted: WantedSymbols) -> None:
    assert {"aclrtMemcpy", "aclnnAdd"} <= wanted.named
    assert "aclrtMemcp" not in wanted.named


def test_a_library_that_the_extension_does_not_reach_does_not_count(
    package: Path, wanted: WantedSymbols
) -> None:
    assert (package / "lib" / "libunreached.so").is_file()
    assert "other" not in wanted.linked


def test_a_package_without_an_extension_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"no _C extension module in it, so it is no torch_npu"):
        wanted_symbols(tmp_path)


def test_a_damaged_library_is_refused_by_name(package: Path, tmp_path: Path) -> None:
    (tmp_path / "_C.so").write_text("no library")
    with pytest.raises(MisuseError, match=r"_C\.so: not a shared library"):
        wanted_symbols(tmp_path)
