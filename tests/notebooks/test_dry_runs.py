"""The notebooks on npu-dry, and with npu-dry beside cpu, as users run them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from dry_processes import unavailable
from finished_runs import fusionkit, why_no_dry

from fusionkit.cli import main
from fusionkit.store import read_json

pytestmark = [pytest.mark.notebook, pytest.mark.dry]


@pytest.fixture(scope="module", autouse=True)
def available(tmp_path_factory: pytest.TempPathFactory) -> None:
    if reason := why_no_dry(tmp_path_factory):
        unavailable(reason)


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All seven notebooks on Llama with target npu-dry."""
    out = tmp_path_factory.mktemp("dry") / "llama"
    done = fusionkit("run", "parameters/llama-tiny.yaml", "-P", "target=npu-dry", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "5 of 7 phases pass; INCONCLUSIVE: 06_verify_integration" in done.stdout
    return out


def gates(run_dir: Path, phase: int) -> dict[str, Any]:
    return {gate["name"]: gate for gate in read_json(run_dir / f"phases/{phase:02d}.json")["gates"]}


def test_phases_1_to_3_and_5_and_layer_1_of_6_pass_and_nothing_that_needs_values_does(dry: Path) -> None:
    for phase in (1, 2, 3, 5):
        assert {gate["verdict"] for gate in gates(dry, phase).values()} == {"PASS"}, phase
    layers = gates(dry, 6)
    assert layers["hits"]["verdict"] == "PASS"
    assert layers["kernels"]["verdict"] == layers["numbers per site"]["verdict"] == "INCONCLUSIVE"
    assert "has no numbers" in layers["numbers per site"]["reason"]
    assert gates(dry, 7)["copies"]["verdict"] == "INCONCLUSIVE"


def test_phase_4_says_whose_numbers_it_has(dry: Path) -> None:
    numbers = gates(dry, 4)["numbers"]
    assert numbers["verdict"] == "PASS"
    assert numbers["reason"].endswith(
        "the numbers are the CPU's, from the reference kernels, and not those of npu-dry"
    )


def test_a_dry_run_is_verified_where_there_is_no_torch_npu(dry: Path) -> None:
    assert main(["verify", str(dry)]) == 0
    assert sys.modules.get("torch_npu") is None


def test_both_targets_stand_beside_each_other(finished_run: Path) -> None:
    graph = gates(finished_run, 1)["npu-dry"]
    assert graph["verdict"] == "PASS"
    assert "1 graph(s), 224 nodes; sites: 11 hit in both" in graph["reason"]
    hits = gates(finished_run, 6)["hits on npu-dry"]
    assert hits["verdict"] == "PASS"
    assert "rms_norm: 5 hits of 5 sites" in hits["reason"]
    page = (
        (finished_run / "01_analyze_model.html").read_text("utf-8").replace("<wbr/>", "").replace("<wbr>", "")
    )
    assert "aten.matmul.default" in page
    assert "npu.npu_fusion_attention_v3.default" in page
    assert main(["verify", str(finished_run)]) == 0
