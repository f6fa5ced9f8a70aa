"""Looking a name up: where torch_npu is found, what is said without it, the cache, and unknown names."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
import torch
from op_doc_wheels import FILES, TRACE, make_doc_wheel, unpack_doc_wheel

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import cache_bytes, clear_cache
from fusionkit.npu.op_docs import index as index_module
from fusionkit.npu.op_docs.index import read_index
from fusionkit.npu.op_docs.lookup import find_index, list_names, lookup
from fusionkit.npu.op_docs.package import find_package
from fusionkit.npu.schemas import SCHEMAS
from fusionkit.store import sha256_file

DOC_FILE = "torch_npu/_op_plugin_docs.py"


@pytest.fixture
def wheel(nothing_found, in_a_folder):
    yield make_doc_wheel(in_a_folder)
    assert not list(in_a_folder.rglob(TRACE))


class TestEntry:
    def test_everything_of_an_op(self, wheel):
        entry = lookup("npu_rms_norm", wheel=wheel)
        assert (entry.name, entry.call) == ("npu_rms_norm", "torch_npu.npu_rms_norm")
        assert (entry.package, entry.version) == (str(wheel), "9.8.7")
        assert entry.section("description") == "归一化的新文档。"
        assert entry.schemas[0].text.startswith("npu_rms_norm(Tensor input")
        assert entry.kit is not None
        assert entry.kit.schemas == (SCHEMAS["npu_rms_norm"],)
        assert ("gamma", "must not be empty") in {(rule.argument, rule.rule) for rule in entry.kit.rules}
        assert [note.id for note in entry.notes] == ["rms_norm_gamma"]
        assert entry.not_found == ("parameters", "returns", "constraints", "products")

    @pytest.mark.parametrize(
        ("given", "name"),
        [
            ("torch_npu.npu_toy_scale", "npu_toy_scale"),
            ("torch.ops.npu.npu_toy_scale", "npu_toy_scale"),
            ("npu::npu_toy_scale", "npu_toy_scale"),
            ("npu_toy_scale()", "npu_toy_scale"),
            ("npu_toy_cache", "atb.npu_toy_cache"),
            ("ToyAdam", "optim.ToyAdam"),
            ("torch_npu.optim.ToyAdam", "optim.ToyAdam"),
        ],
    )
    def test_the_ways_to_name_it(self, wheel, given, name):
        assert lookup(given, wheel=wheel).name == name

    def test_a_class_has_its_signature_and_no_kernel(self, wheel):
        entry = lookup("ToyAdam", wheel=wheel)
        assert entry.signature == "torch_npu.optim.ToyAdam(params, lr=0.001, *, fused=True)"
        assert entry.section("parameters").strip() == "params (iterable): what to step"
        assert (entry.schemas, entry.kit, entry.notes) == ((), None, ())
        assert "schema" not in entry.not_found

    def test_json_is_plain_and_versioned(self, wheel):
        value = json.loads(json.dumps(lookup("npu_toy_scale", wheel=wheel).to_dict()))
        assert value["schema"] == "fusionkit.api-show/1"
        assert value["where"].startswith(f"{DOC_FILE}:")
        assert value["sections"]["constraints"] == "self 不能为空。"
        assert [schema["overload"] for schema in value["schemas"]] == ["", "out"]
        assert value["kit"] is None
        assert value["online_folder"].endswith("/custom_APIs/torch_npu")

    def test_an_unknown_name_has_near_ones(self, wheel):
        with pytest.raises(
            MisuseError, match=r"npu_toy_scales: no such name in torch_npu 9.8.7.*npu_toy_scale"
        ) as caught:
            lookup("npu_toy_scales", wheel=wheel)
        assert "\n" not in str(caught.value)
        with pytest.raises(MisuseError, match="custom_APIs"):
            lookup("qqqqqqqq", wheel=wheel)

    def test_an_op_that_the_wheel_lacks_is_what_the_kit_holds(self, wheel):
        entry = lookup("npu_swiglu", wheel=wheel)
        assert (entry.where, entry.schemas, entry.sections) == ("", (), ())
        assert entry.kit is not None
        assert entry.notes
        assert entry.not_found == ("schema", "documentation")

    def test_a_wheel_of_something_else_is_refused(self, nothing_found, tmp_path):
        empty = make_doc_wheel(tmp_path, dict.fromkeys(FILES))
        with pytest.raises(MisuseError, match="holds nothing of torch_npu's API"):
            lookup("npu_swiglu", wheel=empty)

    def test_the_kernels_of_all_overloads_of_an_op(self, wheel, monkeypatch):
        listed = "npu_rms_norm.List(Tensor[] input) -> Tensor"
        monkeypatch.setitem(SCHEMAS, "npu_rms_norm.List", listed)
        entry = lookup("npu_rms_norm", wheel=wheel)
        assert entry.kit is not None
        assert entry.kit.schemas == (SCHEMAS["npu_rms_norm"], listed)
        assert entry.kit.rules


class TestWithoutTorchNpu:
    def test_the_kit_answers_for_its_ops(self, nothing_found):
        entry = lookup("npu_rotary_mul")
        assert (entry.package, entry.version, entry.where) == ("", "", "")
        assert entry.kit is not None
        assert {note.id for note in entry.notes} == {"rotary_matrix", "rotary_names"}
        assert entry.not_found == ("wheel",)
        assert entry.online.endswith("/custom_APIs/torch_npu/torch_npu-npu_rotary_mul.md")

    def test_a_name_with_a_page_has_its_address(self, nothing_found):
        entry = lookup("optim.NpuFusedAdamW")
        assert entry.kit is None
        assert entry.online.endswith("/custom_APIs/torch_npu-optim/torch_npu-optim-NpuFusedAdamW.md")
        assert lookup("NpuFusedAdamW").name == "optim.NpuFusedAdamW"

    def test_an_unknown_name(self, nothing_found):
        with pytest.raises(MisuseError, match=r"npu_rms_norms: no such name in the kit.*npu_rms_norm"):
            lookup("npu_rms_norms")

    def test_the_list_is_what_the_kit_knows(self, nothing_found):
        assert find_index() is None
        names = {name.name for name in list_names(None)}
        assert {*(op.partition(".")[0] for op in SCHEMAS), "npu_geglu", "npu_grouped_matmul"} <= names


class TestWhereItIsFound:
    def test_a_named_wheel_that_is_not_there(self, nothing_found, tmp_path, monkeypatch):
        with pytest.raises(MisuseError, match=r"absent.whl: no such wheel; --wheel names it"):
            find_package(tmp_path / "absent.whl")
        monkeypatch.setenv("FUSIONKIT_TORCH_NPU_WHEEL", str(tmp_path / "absent.whl"))
        with pytest.raises(MisuseError, match="FUSIONKIT_TORCH_NPU_WHEEL names it"):
            find_package()

    def test_the_order(self, nothing_found, tmp_path, monkeypatch):
        wheels = nothing_found / "wheels"
        wheels.mkdir(parents=True)
        release = ".".join(torch.__version__.split("+")[0].split(".")[:3])
        cached = wheels / f"torch_npu-{release}-py3-none-any.whl"
        shutil.copy(make_doc_wheel(tmp_path), cached)
        assert find_package() is None  # no hash beside it
        recorded = cached.with_name(cached.name + ".sha256")
        recorded.write_text(sha256_file(cached) + "\n")
        assert find_package() == cached
        installed = unpack_doc_wheel(tmp_path / "site-packages")
        monkeypatch.syspath_prepend(str(installed))
        assert find_package() == installed
        named = make_doc_wheel(tmp_path / "site-packages")
        monkeypatch.setenv("FUSIONKIT_TORCH_NPU_WHEEL", str(named))
        assert find_package() == named
        assert find_package(cached) == cached

    def test_a_cached_wheel_that_changed_is_passed_over_and_kept(self, nothing_found, tmp_path):
        wheels = nothing_found / "wheels"
        wheels.mkdir(parents=True)
        release = ".".join(torch.__version__.split("+")[0].split(".")[:3])
        cached = shutil.copy(make_doc_wheel(tmp_path), wheels / f"torch_npu-{release}-py3-none-any.whl")
        cached.with_name(cached.name + ".sha256").write_text("0" * 64)
        assert find_package() is None
        assert cached.exists()

    def test_an_unpacked_wheel_says_the_same(self, wheel, in_a_folder):
        folder = unpack_doc_wheel(in_a_folder / "unpacked")
        by_wheel = lookup("npu_toy_scale", wheel=wheel).to_dict()
        assert lookup("npu_toy_scale", wheel=folder).to_dict() == by_wheel | {"package": str(folder)}


class TestCache:
    @pytest.fixture
    def collected(self, monkeypatch):
        """How often a package was read."""
        counted: list[str] = []
        collect = index_module._collect
        monkeypatch.setattr(
            index_module, "_collect", lambda opened: (counted.append(str(opened.path)), collect(opened))[1]
        )
        index_module._read_index.cache_clear()
        return counted

    def test_read_once_and_kept_by_hash(self, wheel, collected, nothing_found, tmp_path):
        first = read_index(wheel)
        assert read_index(wheel) is first
        index_module._read_index.cache_clear()
        assert read_index(wheel).entries == first.entries
        other = shutil.copy(wheel, tmp_path / "other-name.whl")
        assert read_index(other).entries == first.entries
        assert len(collected) == 1
        assert [file.suffix for file in (nothing_found / "op-docs").iterdir()] == [".json"]

    def test_other_contents_are_read_anew(self, wheel, collected, in_a_folder):
        assert "npu_toy_scale" in read_index(wheel).entries
        make_doc_wheel(in_a_folder, {DOC_FILE: b"", "torch_npu/version.py": b"__version__ = '9.8.70'"})
        changed = read_index(wheel)
        assert changed.version == "9.8.70"
        assert changed.entries["npu_toy_scale"].doc.text == ""
        assert len(collected) == 2

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": "1"}'])
    def test_a_broken_cache_file_is_made_again(self, wheel, collected, nothing_found, text):
        first = read_index(wheel)
        (kept,) = (nothing_found / "op-docs").iterdir()
        kept.write_text(text)
        index_module._read_index.cache_clear()
        assert read_index(wheel).entries == first.entries
        assert json.loads(kept.read_text())["version"] == "9.8.7"

    def test_a_cache_that_cannot_be_written_is_done_without(self, wheel, monkeypatch, tmp_path):
        blocked = tmp_path / "a-file"
        blocked.write_text("")
        monkeypatch.setenv("FUSIONKIT_CACHE", str(blocked))
        assert lookup("npu_toy_scale", wheel=wheel).where

    def test_clearing_the_cache_of_npu_dry_removes_it(self, wheel, nothing_found):
        read_index(wheel)
        assert cache_bytes() >= next((nothing_found / "op-docs").iterdir()).stat().st_size
        clear_cache()
        assert not (nothing_found / "op-docs").exists()


def test_names_are_listed_and_searched_without_loading_torch(nothing_found, in_a_folder):
    wheel = make_doc_wheel(in_a_folder)
    code = (
        "import sys; from fusionkit.cli import main;"
        f"main(['api', 'list', '--wheel', {str(wheel)!r}]); main(['api', 'search', 'toy', '--wheel', {str(wheel)!r}]);"
        "sys.exit(int('torch' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (0, "")
