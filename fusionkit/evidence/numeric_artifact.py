"""Compared outputs as evidence: written by the run, and compared anew when the evidence is verified.

`X.safetensors` has `<site>/expected`, `<site>/actual` and optionally `<site>/reference`; `X.json` beside it the
tolerance and the comparison of each site.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from fusionkit.encoding import decode
from fusionkit.errors import MisuseError
from fusionkit.evidence.finding import Effect, Finding, phase_file
from fusionkit.numeric.compare import compare_outputs
from fusionkit.numeric.comparison import Comparison
from fusionkit.numeric.tolerance import Tolerance
from fusionkit.store import read_json, write_bytes, write_json

SCHEMA = "fusionkit/numeric/1"
_NUMBER = re.compile(r"\d+(\.\d+)?(e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class ComparedOutput:
    """One output of one site: tensors of one shape, `reference` in float64; other fields as in compare_outputs."""

    expected: torch.Tensor
    actual: torch.Tensor
    reference: torch.Tensor | None = None
    dtype_gate: torch.dtype | None = None
    original_ulps: tuple[float, float] | None = None

    def compare(self, site: str, tolerance: Tolerance) -> Comparison:
        """The result of compare_outputs for this output."""
        return compare_outputs(
            self.expected,
            self.actual,
            reference=self.reference,
            tolerance=tolerance,
            name=site,
            dtype_gate=self.dtype_gate,
            original_ulps=None if self.original_ulps is None else {site: self.original_ulps},
        )


def write_compared(
    run_dir: Path | str,
    name: str,
    sites: Mapping[str, ComparedOutput],
    tolerance: Tolerance | None = None,
) -> tuple[dict[str, str], dict[str, Any]]:
    """Compare every site and keep the tensors as `artifacts/<name>.safetensors` with its .json.

    Returns the artifact for PhaseRecord.artifacts and, for PhaseRecord.numeric, per site
    `{"verdict", "reason", "max_ulps", "mean_ulps", "min_cosine", "max_abs"}`.
    Raises MisuseError without sites.
    """
    if not sites:
        raise MisuseError(f"artifacts/{name}: no site was compared; record the gate as INCONCLUSIVE instead")
    tolerance = tolerance or Tolerance()
    compared = {site: output.compare(site, tolerance) for site, output in sites.items()}
    relative = f"artifacts/{name}.safetensors"
    path = Path(run_dir) / relative
    write_bytes(path, save(_tensors(sites)))
    entries = {
        site: {
            "dtype_gate": output.dtype_gate and str(output.dtype_gate).removeprefix("torch."),
            "original_ulps": None if output.original_ulps is None else list(output.original_ulps),
            "comparison": compared[site].to_dict(),
        }
        for site, output in sites.items()
    }
    write_json(
        path.with_suffix(".json"), {"schema": SCHEMA, "tolerance": tolerance.to_dict(), "sites": entries}
    )
    return {"path": relative, "kind": "numeric"}, {site: claim(c.to_dict()) for site, c in compared.items()}


def claim(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of one site in a phase record's `numeric`: the main fields of Comparison.to_dict()."""
    names = ("verdict", "reason", "max_ulps", "mean_ulps", "min_cosine", "max_abs")
    return {name: comparison[name] for name in names}


def recheck(path: Path, phase: Mapping[str, Any]) -> list[Finding]:
    """Compare the recorded tensors anew; a different result in the .json or the phase record is a contradiction.

    The phase's `numeric` maps sites to claims (mappings with a verdict); a claim whose site is in no artifact of the
    phase is incomplete. Figures may differ by 1e-6 relative, as between machines.
    """
    listed = [artifact["path"] for artifact in phase["artifacts"] if artifact["kind"] == "numeric"]
    relative = next(name for name in listed if path.as_posix().endswith(name))
    if not path.with_suffix(".json").is_file():
        return [Finding(relative, "its .json is missing", Effect.INCOMPLETE)]
    try:
        tolerance, entries = _read_entries(path)
        tensors = load_file(path)
        outputs = {site: _output(site, entry, tensors) for site, entry in entries.items()}
        recorded = {site: entry["comparison"] for site, entry in entries.items()}
    except (MisuseError, SafetensorError, KeyError, TypeError, AttributeError, OSError) as error:
        return [Finding(relative, f"cannot be read as compared outputs ({error!s:.200})")]
    if not outputs:
        return [Finding(relative, "holds no compared output", Effect.INCOMPLETE)]
    findings = _uncovered(path, relative, listed, phase) if relative == listed[0] else []
    for site, output in outputs.items():
        again = output.compare(site, tolerance).to_dict()
        claimed = {site: phase["numeric"][site]} if _is_claim(phase["numeric"].get(site)) else {}
        for where, said in ((relative, recorded), (phase_file(phase), claimed)):
            difference = _difference(said.get(site, {}), again)
            findings += [Finding(where, f"{site}: {difference}")] if difference else []
    return findings


def _read_entries(path: Path) -> tuple[Tolerance, Mapping[str, Any]]:
    kept = read_json(path.with_suffix(".json"))
    return decode(Tolerance, kept["tolerance"], path.name), kept["sites"]


def _uncovered(path: Path, relative: str, listed: Sequence[str], phase: Mapping[str, Any]) -> list[Finding]:
    """Claims of the phase whose site is in none of its numeric artifacts."""
    run_dir = path.parents[len(Path(relative).parts) - 1]
    sidecars = [(run_dir / name).with_suffix(".json") for name in listed]
    covered = {site for file in sidecars if file.is_file() for site in _read_entries(file)[1]}
    what = "{}: claimed, but in none of the phase's compared outputs"
    claimed = [site for site, value in phase["numeric"].items() if _is_claim(value)]
    return [
        Finding(phase_file(phase), what.format(s), Effect.INCOMPLETE) for s in claimed if s not in covered
    ]


def _is_claim(value: Any) -> bool:
    return isinstance(value, Mapping) and "verdict" in value


def _tensors(sites: Mapping[str, ComparedOutput]) -> dict[str, torch.Tensor]:
    return {
        f"{site}/{part}": tensor.detach().cpu().clone().contiguous()
        for site, output in sites.items()
        for part in ("expected", "actual", "reference")
        if (tensor := getattr(output, part)) is not None
    }


def _output(site: str, entry: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> ComparedOutput:
    gate = entry["dtype_gate"]
    return ComparedOutput(
        tensors[f"{site}/expected"],
        tensors[f"{site}/actual"],
        tensors.get(f"{site}/reference"),
        None if gate is None else getattr(torch, gate),
        None if entry["original_ulps"] is None else tuple(entry["original_ulps"]),
    )


def _difference(said: Mapping[str, Any], again: Mapping[str, Any]) -> str | None:
    """The first recorded value that the new comparison does not reproduce."""
    for key, value in said.items():
        if key not in again or not _agrees(value, again[key]):
            return f"{key} is recorded as {value!r}, the kept tensors say {again.get(key)!r}"
    return None


def _agrees(said: Any, again: Any) -> bool:
    if isinstance(said, float) and isinstance(again, float):
        return math.isclose(said, again, rel_tol=1e-6, abs_tol=1e-300)
    if isinstance(said, str) and isinstance(again, str):
        return _NUMBER.sub("#", said) == _NUMBER.sub("#", again)
    if isinstance(said, list) and isinstance(again, list):
        return len(said) == len(again) and all(map(_agrees, said, again))
    if isinstance(said, Mapping) and isinstance(again, Mapping):
        return set(said) == set(again) and all(_agrees(said[key], again[key]) for key in said)
    return bool(said == again)
