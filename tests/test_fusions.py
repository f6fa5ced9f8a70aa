"""The table of fusions: every row whole, its ops real, and the three registrations as the rows say."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys

import pytest

import fusionkit.patterns
from fusionkit.config import FusionPatterns, flag_names
from fusionkit.errors import MisuseError
from fusionkit.fusions import (
    FUSIONS,
    FusedOp,
    Fusion,
    fused_packets,
    fusion,
    fusion_of_op,
    pattern_names,
    site_fusions,
)
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS
from fusionkit.passes.registry import pattern_registry

PATTERNED = [row for row in FUSIONS if row.pattern is not None]
FIELDS = [field.name for field in dataclasses.fields(Fusion) if field.name != "name"]
WHOLE = {name: getattr(FUSIONS[0], name) for name in FIELDS}


@pytest.mark.parametrize("field", FIELDS)
def test_a_row_that_lacks_a_field_is_refused_naming_row_and_field(field: str) -> None:
    fields = {name: value for name, value in WHOLE.items() if name != field}
    with pytest.raises(MisuseError) as caught:
        Fusion(name="layer_norm", **fields)
    assert str(caught.value) == f"fusionkit/fusions.py: row 'layer_norm' lacks {field}; give each field"


def test_names_are_unique_and_known() -> None:
    names = [row.name for row in FUSIONS]
    assert len(set(names)) == len(names)
    assert fusion("rope").name == "rope"
    with pytest.raises(
        MisuseError, match=r"no fusion 'ropes' in fusionkit/fusions.py; it has rms_norm, rope"
    ):
        fusion("ropes")


def test_importing_the_table_imports_no_torch() -> None:
    code = "import sys, fusionkit.fusions, fusionkit.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("row", PATTERNED, ids=lambda row: row.name)
def test_the_registrations_are_what_the_row_says(row: Fusion) -> None:
    assert row.pattern is not None
    assert row.pattern.flag == f"enable_{row.name}"
    assert pattern_registry[row.pattern.flag] == (row.pattern.group, "fusionkit.patterns")
    assert row.pattern.group in fusionkit.patterns.__all__
    module = importlib.import_module(row.pattern.module)
    assert getattr(module, row.pattern.group) is getattr(fusionkit.patterns, row.pattern.group)
    assert getattr(FusionPatterns(), row.pattern.flag) is True


def test_rows_flags_and_registry_have_one_order() -> None:
    flags = [row.pattern.flag for row in PATTERNED if row.pattern is not None]
    assert flags == list(flag_names()) == list(pattern_registry)
    assert list(pattern_names()) == [flag.removeprefix("enable_") for flag in flags]


@pytest.mark.parametrize("op", [op for row in FUSIONS for op in row.ops], ids=lambda op: op.name)
def test_every_op_has_a_schema_for_each_overload(op: FusedOp) -> None:
    namespace, _, name = op.name.partition("::")
    schemas = {"npu": SCHEMAS, "fusionkit": KIT_SCHEMAS}.get(namespace)
    known_elsewhere = {"mindiesd::layernorm_scale_shift", "npu::npu_prompt_flash_attention"}
    if op.name in known_elsewhere:
        assert schemas is None or name not in schemas
        return
    assert schemas is not None
    assert {name if overload == "default" else f"{name}.{overload}" for overload in op.overloads} <= set(
        schemas
    )


def test_an_op_stands_for_the_fusion_whose_pattern_puts_it_in() -> None:
    assert {op: fusion_of_op(op) for op in ("npu::npu_fast_gelu", "mindiesd::layernorm_scale_shift")} == {
        "npu::npu_fast_gelu": "gelu",
        "mindiesd::layernorm_scale_shift": "ada_layer_norm",
    }
    assert fusion_of_op("npu::npu_geglu") is None  # known, without a pattern
    assert fusion_of_op("aten::add") is None


def test_what_a_library_fuses_itself() -> None:
    assert fused_packets("rms_norm") == ("npu.npu_rms_norm", "npu.npu_gemma_rms_norm", "npu.npu_add_rms_norm")
    assert fused_packets("of_mine") == ()
    assert "add_rms_norm" not in site_fusions(), "its op is a norm that was fused with the addition"
    assert {*pattern_names(), "geglu"} <= set(site_fusions())


def test_every_primitive_is_counted_by_its_own_row() -> None:
    for row in FUSIONS:
        assert {counter.primitive for counter in row.counters} <= {row.primitive}
