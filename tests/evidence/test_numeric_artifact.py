"""Compared outputs that are kept, and the claims that they do not bear out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fusionkit.errors import MisuseError
from fusionkit.evidence.finding import Effect, Finding
from fusionkit.evidence.numeric_artifact import ComparedOutput, write_compared
from fusionkit.evidence.verify import recheck_phase


def outputs(scale: float = 1.0) -> dict[str, ComparedOutput]:
    reference = torch.randn(4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = reference.to(torch.bfloat16)
    return {
        "blocks.0.norm": ComparedOutput(expected, (reference * scale).to(torch.bfloat16), reference),
        "blocks.1.norm": ComparedOutput(expected.float(), expected.float(), None, torch.bfloat16),
    }


def phase_of(run_dir: Path, sites: dict[str, ComparedOutput], **changes: Any) -> dict[str, Any]:
    artifact, numeric = write_compared(run_dir, "sites", sites)
    return {"phase": 6, "hits": {}, "numeric": numeric, "artifacts": [artifact], **changes}


def test_claims_that_come_out_again_find_nothing(tmp_path: Path) -> None:
    phase = phase_of(tmp_path, outputs())
    assert phase["numeric"]["blocks.0.norm"]["verdict"] == "PASS"
    assert recheck_phase(tmp_path, phase) == []


def test_a_failed_comparison_is_kept_and_borne_out_too(tmp_path: Path) -> None:
    phase = phase_of(tmp_path, outputs(scale=1.3))
    assert phase["numeric"]["blocks.0.norm"]["verdict"] == "FAIL"
    assert recheck_phase(tmp_path, phase) == []


def change_claim(run_dir: Path, phase: dict[str, Any]) -> None:
    phase["numeric"]["blocks.0.norm"]["max_abs"] += 0.5


def change_verdict(run_dir: Path, phase: dict[str, Any]) -> None:
    phase["numeric"]["blocks.0.norm"]["verdict"] = "FAIL"


def change_tensor(run_dir: Path, phase: dict[str, Any]) -> None:
    path = run_dir / "artifacts/sites.safetensors"
    tensors = load_file(path)
    tensors["blocks.0.norm/actual"] = tensors["blocks.0.norm/actual"] * 1.3
    save_file(tensors, path)


def change_recorded_comparison(run_dir: Path, phase: dict[str, Any]) -> None:
    path = run_dir / "artifacts/sites.json"
    kept = json.loads(path.read_text())
    kept["sites"]["blocks.1.norm"]["comparison"]["bit_equal"] = False
    path.write_text(json.dumps(kept))


def drop_tensor(run_dir: Path, phase: dict[str, Any]) -> None:
    path = run_dir / "artifacts/sites.safetensors"
    save_file({k: v for k, v in load_file(path).items() if k != "blocks.0.norm/actual"}, path)


def spoil_file(run_dir: Path, phase: dict[str, Any]) -> None:
    (run_dir / "artifacts/sites.safetensors").write_bytes(b"nothing of the kind")


@pytest.mark.parametrize(
    "change",
    [change_claim, change_verdict, change_tensor, change_recorded_comparison, drop_tensor, spoil_file],
)
def test_whatever_the_tensors_do_not_bear_out_is_a_contradiction(
    tmp_path: Path, change: Callable[[Path, dict[str, Any]], None]
) -> None:
    phase = phase_of(tmp_path, outputs())
    change(tmp_path, phase)
    findings = recheck_phase(tmp_path, phase)
    assert findings
    assert {finding.effect for finding in findings} == {Effect.CONTRADICTED}


def test_a_claimed_site_that_was_not_kept_is_incomplete(tmp_path: Path) -> None:
    phase = phase_of(tmp_path, outputs())
    phase["numeric"] |= {"blocks.9.norm": {"verdict": "PASS"}, "smallest_scale_seen": 0.01}
    assert recheck_phase(tmp_path, phase) == [
        Finding(
            "phases/06.json",
            "blocks.9.norm: claimed, but in none of the phase's compared outputs",
            Effect.INCOMPLETE,
        )
    ]


@pytest.mark.parametrize(
    ("entry", "claims"), [("numeric", {"s": {"verdict": "PASS"}}), ("hits", {"rms_norm": 12})]
)
def test_a_claim_without_an_artifact_is_incomplete(
    tmp_path: Path, entry: str, claims: dict[str, Any]
) -> None:
    phase = {
        "phase": 6,
        "hits": {},
        "numeric": {},
        "artifacts": [{"path": "x.png", "kind": "plot"}],
        entry: claims,
    }
    assert [finding.effect for finding in recheck_phase(tmp_path, phase)] == [Effect.INCOMPLETE]


def test_a_missing_artifact_is_incomplete(tmp_path: Path) -> None:
    phase = phase_of(tmp_path, outputs())
    (tmp_path / "artifacts/sites.safetensors").unlink()
    assert [finding.effect for finding in recheck_phase(tmp_path, phase)] == [Effect.INCOMPLETE]


def test_no_site_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="no site was compared"):
        write_compared(tmp_path, "sites", {})
