"""What is read from a wheel: docstrings, schemas, classes; the later entry, file and line, and nothing is run."""

from __future__ import annotations

import pytest
from op_doc_wheels import DOCS, FILES, TABLE, TRACE, make_doc_wheel, unpack_doc_wheel

from fusionkit.errors import MisuseError
from fusionkit.npu.op_docs.docstrings import printable, read_docstrings, read_python_api
from fusionkit.npu.op_docs.package import open_package, package_digest
from fusionkit.npu.op_docs.registrations import read_schemas

DOC_FILE = "torch_npu/_op_plugin_docs.py"
TABLE_FILE = "torch_npu/csrc/aten/npu_native_functions_by_codegen.yaml"
LIBRARY = "torch_npu/lib/libtorch_npu.so"


@pytest.fixture(params=["wheel", "folder"])
def package(request, in_a_folder):
    path = (
        make_doc_wheel(in_a_folder)
        if request.param == "wheel"
        else unpack_doc_wheel(in_a_folder / "unpacked")
    )
    with open_package(path) as opened:
        yield opened
    assert not list(in_a_folder.rglob(TRACE))


def line_of(text: str, start: str, *, last: bool = False) -> int:
    numbers = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(start)]
    return numbers[-1 if last else 0]


class TestDocstrings:
    def test_the_later_of_two_entries_holds_and_names_the_earlier(self, package):
        found = read_docstrings(package)["npu_rms_norm"]
        assert "新文档" in found.text
        assert "旧文档" not in found.text
        first, second = (line_of(DOCS, "_add_torch_npu_docstr(", last=last) for last in (False, True))
        assert second > first
        calls = [n for n, line in enumerate(DOCS.splitlines(), 1) if line == "_add_torch_npu_docstr("]
        assert found.where == f"{DOC_FILE}:{calls[-1]}"
        assert found.superseded == (f"{DOC_FILE}:{calls[0]}",)

    def test_only_literal_registrations_count(self, package):
        assert set(read_docstrings(package)) == {"npu_rms_norm", "npu_toy_scale", "atb.npu_toy_cache"}

    def test_a_backslash_that_became_a_control_character_is_itself_again(self, package):
        text = read_docstrings(package)["npu_toy_scale"].text
        assert r"$\begin{x}$ and \begin{y}" in text

    def test_control_characters_do_not_reach_a_terminal(self):
        assert printable("a\x1b[31mb\x00\x9b\n\tc") == "a[31mb\n\tc"

    def test_a_file_that_is_not_python_is_named_with_its_line(self, in_a_folder):
        wheel = make_doc_wheel(in_a_folder, {DOC_FILE: b"x = 1\ndef (\n"})
        with (
            open_package(wheel) as opened,
            pytest.raises(MisuseError, match=rf"{DOC_FILE} line 2 is not Python"),
        ):
            read_docstrings(opened)


class TestSchemas:
    def test_registered_text_with_the_library_and_the_line_of_the_table(self, package):
        by_name = {(s.op, s.overload): s for s in read_schemas(package)}
        norm = by_name["npu_rms_norm", ""]
        assert (
            norm.text == "npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)"
        )
        assert norm.where == (LIBRARY, f"{TABLE_FILE}:{line_of(TABLE, '  func: npu_rms_norm')}")
        assert by_name["npu_toy_scale", "out"].text.endswith("*, Tensor[] out) -> Tensor")

    def test_what_only_one_of_them_has(self, package):
        by_op = {s.op: s for s in read_schemas(package)}
        assert by_op["npu_table_only"].text == 'npu_table_only(Tensor self, str mode="a: b") -> Tensor'
        assert by_op["npu_table_only"].where == (f"{TABLE_FILE}:{line_of(TABLE, '- func: ' + chr(39))}",)
        assert by_op["npu_library_only"].where == (LIBRARY,)

    def test_other_strings_and_atens_ops_are_no_schemas_of_it(self, package):
        assert sorted({s.op for s in read_schemas(package)}) == [
            "atb.npu_toy_cache",
            "npu_library_only",
            "npu_rms_norm",
            "npu_table_only",
            "npu_toy_scale",
        ]

    def test_the_default_overload_comes_first(self, package):
        assert [s.overload for s in read_schemas(package) if s.op == "npu_toy_scale"] == ["", "out"]


class TestPythonApi:
    def test_signatures_docstrings_and_places(self, package):
        found = read_python_api(package)
        assert set(found) == {"optim.ToyAdam", "contrib.toy_roll"}
        adam = found["optim.ToyAdam"]
        assert adam.signature == "torch_npu.optim.ToyAdam(params, lr=0.001, *, fused=True)"
        source = FILES["torch_npu/optim/adam.py"].decode()
        assert adam.where == f"torch_npu/optim/adam.py:{line_of(source, 'class ToyAdam')}"
        assert adam.text.startswith("An optimizer.\n\nArgs:")
        assert found["contrib.toy_roll"].signature == "torch_npu.contrib.toy_roll(x, shift=1)"
        assert found["contrib.toy_roll"].where == "torch_npu/contrib/function/roll.py:1"


class TestPackage:
    def test_what_is_no_wheel_is_refused_in_one_line(self, tmp_path):
        path = tmp_path / "torch_npu.whl"
        path.write_bytes(b"PK no zip")
        with (
            pytest.raises(MisuseError, match="cannot be read as a wheel of torch-npu") as caught,
            open_package(path),
        ):
            pass
        assert "\n" not in str(caught.value)

    def test_a_damaged_member_is_refused(self, tmp_path):
        wheel = make_doc_wheel(tmp_path)
        data = bytearray(wheel.read_bytes())
        at = data.find(b"npu_toy_scale")
        data[at : at + 3] = b"xxx"
        wheel.write_bytes(data)
        with pytest.raises(MisuseError, match="cannot be read"), open_package(wheel) as opened:
            read_docstrings(opened)

    def test_the_digest_of_a_folder_follows_its_files(self, tmp_path):
        folder = unpack_doc_wheel(tmp_path / "a")
        names = (DOC_FILE, "torch_npu/optim")
        before = package_digest(folder, names)
        assert package_digest(unpack_doc_wheel(tmp_path / "b"), names) == before
        (folder / "torch_npu/optim/adam.py").write_text("class Other: pass\n")
        assert package_digest(folder, names) != before
