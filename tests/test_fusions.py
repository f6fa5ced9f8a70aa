"""The table of fusions: every row whole, its ops real, and the three registrations as the rows say."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fusionkit.fusions
import fusionkit.patterns
from fusionkit.config import FusionPatterns, flag_names
from fusionkit.errors import MisuseError
from fusionkit.fusion_rows import FusedOp, Fusion, Pattern
from fusionkit.fusions import (
    FUSIONS,
    fused_packets,
    fusion,
    fusion_of_op,
    pattern_names,
    sharing,
    site_fusions,
)
from fusionkit.npu.schemas import KIT_SCHEMAS, SCHEMAS
from fusionkit.passes.registry import pattern_registry

PATTERNED = [row for row in FUSIONS if row.pattern is not None]


def whole(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def without(record: Any, name: str) -> dict[str, Any]:
    return {field: value for field, value in whole(record).items() if field != name}


FIRST = FUSIONS[0]
LACKING = [
    *((name, without(FIRST, name)) for name in whole(FIRST) if name != "name"),
    *(
        (f"ops[1].{name}", {**whole(FIRST), "ops": (FIRST.ops[0], FusedOp(**without(FIRST.ops[0], name)))})
        for name in whole(FIRST.ops[0])
        if name not in ("older_types", "overloads")
    ),
    *(
        (f"pattern.{name}", {**whole(FIRST), "pattern": Pattern(**without(FIRST.pattern, name))})
        for name in whole(FIRST.pattern)
    ),
]


@pytest.mark.parametrize(("field", "fields"), LACKING, ids=[field for field, _ in LACKING])
def test_a_row_that_lacks_a_field_is_refused_naming_row_and_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(MisuseError) as caught:
        Fusion(**fields)
    assert str(caught.value) == f"fusionkit/fusions.py: row 'rms_norm' lacks {field}; give each field"


def test_a_row_without_a_name_is_known_by_its_first_field() -> None:
    with pytest.raises(MisuseError) as caught:
        Fusion(**without(FUSIONS[1], "name"))
    row = f"the row with chain {FUSIONS[1].chain!r}"
    assert str(caught.value) == f"fusionkit/fusions.py: {row} lacks name; give each field"
    with pytest.raises(MisuseError, match="the row with no field lacks name, chain"):
        Fusion()


def test_no_positional_argument_takes_the_place_of_another() -> None:
    with pytest.raises(TypeError):
        Pattern("fusionkit.patterns.rope_pattern", "RopePatternGroup")  # type: ignore[misc]
    with pytest.raises(TypeError):
        FusedOp("npu::npu_gelu", "op-plugin")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        (', flag="enable_rope"', "row 'rope' lacks pattern.flag"),
        ('kernel_types=("SwiGlu",), ', "row 'swiglu' lacks ops[0].kernel_types"),
        ('name="gelu",', "the row with chain 'gelu(approximate=\"tanh\")' lacks name"),
    ],
)
def test_the_command_ends_with_2_and_one_line(tmp_path: Path, text: str, lacking: str) -> None:
    package = Path(fusionkit.patterns.__path__[0]).parent
    shutil.copytree(package, tmp_path / "fusionkit", ignore=shutil.ignore_patterns("__pycache__"))
    table = tmp_path / "fusionkit" / "fusions.py"
    rows = table.read_text("utf-8")
    assert rows.count(text) == 1
    table.write_text(rows.replace(text, ""), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "fusionkit", "hits", "llama", "--patterns", "rope"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    said = f"fusionkit: fusionkit/fusions.py: {lacking}; give each field\n"
    assert (done.returncode, done.stderr) == (2, said)


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


def test_fusions_with_an_op_in_common_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {sharing(row.name) for row in FUSIONS} == {(row.name,) for row in FUSIONS}
    assert sharing("of_mine") == ("of_mine",)
    ada = fusion("ada_layer_norm")
    norm = dataclasses.replace(ada, name="layer_norm", ops=ada.ops[:1])
    other = dataclasses.replace(ada, name="other_norm", ops=ada.ops[1:])
    monkeypatch.setattr(fusionkit.fusions, "FUSIONS", (*FUSIONS, norm, other))
    together = ("ada_layer_norm", "layer_norm", "other_norm")
    assert {sharing(name) for name in together} == {together}


def test_every_primitive_is_counted_by_its_own_row() -> None:
    for row in FUSIONS:
        assert {counter.primitive for counter in row.counters} <= {row.primitive}
