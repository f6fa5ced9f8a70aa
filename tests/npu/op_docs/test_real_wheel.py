"""The real wheel of this machine: nothing of it is lost, and it agrees with the schemas that the kit holds."""

from __future__ import annotations

import re

import pytest
import torch

from fusionkit.npu.op_docs.docstrings import DOC_MODULES
from fusionkit.npu.op_docs.index import ApiIndex
from fusionkit.npu.op_docs.lookup import lookup
from fusionkit.npu.op_docs.package import open_package
from fusionkit.npu.op_docs.search import search_api
from fusionkit.npu.op_docs.sections import split_sections
from fusionkit.npu.schemas import SCHEMAS

SCANNED = (
    "npu_rms_norm",
    "npu_add_rms_norm",
    "npu_swiglu",
    "npu_geglu",
    "npu_rotary_mul",
    "npu_fusion_attention",
    "npu_grouped_matmul",
    "npu_gelu",
    "npu_scaled_masked_softmax",
    "npu_moe_token_permute",
    "npu_moe_token_unpermute",
)


def test_every_registration_is_there_by_its_name(real_index: ApiIndex):
    with open_package(real_index.path) as package:
        for file, function, prefix in DOC_MODULES:
            source = (package.read(file) or b"").decode()
            names = set(re.findall(rf'^ *{function}\(\s*"([^"]+)"', source, re.MULTILINE))
            assert len(names) >= 9
            assert {prefix + name for name in names} <= {
                n for n, e in real_index.entries.items() if e.doc.text
            }


def test_the_kits_schemas_are_the_registered_ones(real_index: ApiIndex):
    for name, text in SCHEMAS.items():
        op, _, overload = name.partition(".")
        (registered,) = (s.text for s in real_index.entries[op].schemas if s.overload == overload)
        held, found = torch._C.parse_schema(f"npu::{text}"), torch._C.parse_schema(f"npu::{registered}")
        assert str(held) == str(found)


def test_every_schema_is_one_that_torch_reads(real_index: ApiIndex):
    count = 0
    for entry in real_index.entries.values():
        for schema in entry.schemas:
            if "__torch__" not in schema.text:
                torch._C.parse_schema(f"npu::{schema.text}")
                count += 1
    assert count > 400


def test_the_names_of_code_generation_are_those_of_the_libraries(real_index: ApiIndex):
    tabled = [s for e in real_index.entries.values() for s in e.schemas if s.where[-1].count(".yaml:")]
    assert len(tabled) > 400
    assert [s.text for s in tabled if len(s.where) < 2] == []


@pytest.mark.parametrize("name", SCANNED)
def test_an_op_of_the_scan_has_a_schema_and_is_documented_or_says_that_it_is_not(name, real_index: ApiIndex):
    entry = lookup(name, wheel=real_index.path)
    assert entry.schemas
    if "documentation" in entry.not_found:
        assert entry.online.endswith(f"torch_npu-{name}.md")
    else:
        assert entry.section("description")
        assert entry.section("parameters")


def test_where_is_the_line_that_registers_it(real_index: ApiIndex):
    with open_package(real_index.path) as package:
        for name in ("npu_rotary_mul", "npu_moe_token_permute"):
            file, _, line = real_index.entries[name].doc.where.rpartition(":")
            lines = (package.read(file) or b"").decode().splitlines()
            assert f'"{name}"' in "".join(lines[int(line) - 1 : int(line) + 1])


def test_the_optimizer_of_the_scan(real_index: ApiIndex):
    entry = lookup("NpuFusedAdamW", wheel=real_index.path)
    assert entry.name == "optim.NpuFusedAdamW"
    assert entry.signature.startswith("torch_npu.optim.NpuFusedAdamW(params, lr=0.001, betas=(0.9, 0.999)")
    assert "weight_decay" in entry.section("parameters")


def test_sections_lose_no_text(real_index: ApiIndex):
    for name, entry in real_index.entries.items():
        text = entry.doc.text
        kept = "".join(section.text for section in split_sections(text))
        assert len(kept.split()) >= 0.85 * len(text.split()) - 12, name


def test_most_documented_ops_have_their_sections_told_apart(real_index: ApiIndex):
    documented = [entry for entry in real_index.entries.values() if entry.doc.text and entry.schemas]
    kinds = [{section.kind for section in split_sections(entry.doc.text)} for entry in documented]
    assert sum("parameters" in found for found in kinds) >= 0.95 * len(documented)
    assert sum("description" in found for found in kinds) >= 0.95 * len(documented)


def test_search_finds_the_op_that_is_meant(real_index: ApiIndex):
    assert search_api(real_index, ["rms", "norm"])[0].name == "npu_rms_norm"
    assert search_api(real_index, ["旋转位置编码"])[0].name in (
        "npu_rotary_mul",
        "npu_mrope",
        "npu_interleave_rope",
    )
    assert search_api(real_index, ["swiglu"])[0].name == "npu_swiglu"
