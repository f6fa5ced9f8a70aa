"""Loose files: what a user's code may do in the process of a proof, and which conditions are made true."""

from __future__ import annotations

import json
import textwrap

import pytest
from proved_texts import shared_server

from fusionkit.errors import MisuseError
from fusionkit.identify.proving import Proof, prove, prove_file
from fusionkit.identify.scan_file import sites_of_text
from fusionkit.verdict import Verdict

HEAD = """
import os
import sys
import torch
from torch import nn
{extra}

class Norm(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.use_fused_norm = False

    def forward(self, x):
"""
ORIGINAL = """
variance = x.float().pow(2).mean(-1, keepdim=True)
return (x.float() * torch.rsqrt(variance + 1e-5) * self.weight.float()).to(x.dtype)
"""
FUSED = "return torch_npu.npu_rms_norm(x, self.weight, 1e-5)[0]"
GUARD = """
try:
    import torch_npu
except ImportError:
    torch_npu = None
"""


def source(body: str, extra: str = "", parameters: str = "dim") -> str:
    return HEAD.format(extra=extra, parameters=parameters) + textwrap.indent(body.strip(), " " * 8) + "\n"


def guarded(fused: str = FUSED, condition: str = "torch_npu is not None") -> str:
    return (
        f"if {condition}:\n"
        + textwrap.indent(fused, "    ")
        + "\nelse:\n"
        + textwrap.indent(ORIGINAL.strip(), "    ")
    )


@pytest.fixture
def proof_of(tmp_path):
    def run(original: str, *texts: str, **options) -> list[Proof]:
        path = tmp_path / "model.py"
        path.write_text(original, "utf-8")
        (site,) = [s for s in sites_of_text(path, original) if s.op == "npu_rms_norm"]
        return prove_file(path, [(site, text) for text in texts], server=shared_server(), **options)

    return run


def test_a_loose_file_is_proved_and_the_proof_survives_json(proof_of):
    (proof,) = proof_of(source(ORIGINAL), source(guarded(), GUARD))
    assert proof.verdict is Verdict.PASS, proof.reason
    assert proof.symbol == "Norm"
    assert Proof.from_dict(json.loads(json.dumps(proof.to_dict()))) == proof


@pytest.mark.parametrize("given", ["x.clamp(-100, 100)", "x * (x.abs().amax(-1, keepdim=True) > 0.02)"])
def test_a_difference_in_large_or_small_rows_is_refused(proof_of, given):
    fused = f"return torch_npu.npu_rms_norm({given}, self.weight, 1e-5)[0]"
    (proof,) = proof_of(source(ORIGINAL), source(guarded(fused), GUARD))
    assert proof.verdict is Verdict.FAIL
    assert "rows of every scale" in proof.reason


def test_it_prints_and_looks_for_torch_npu_without_harm(proof_of, capfd):
    noisy = 'print("hello")\nos.write(1, b"raw")\nassert sys.modules.get("torch_npu") is None\n'
    (proof,) = proof_of(source(noisy + ORIGINAL), source(noisy + guarded(), GUARD))
    assert proof.verdict is Verdict.PASS, proof.reason
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("sys.exit(0)", "SystemExit"),
        ("os._exit(0)", "ended with code 0"),
        ('raise RuntimeError("no luck")', "no luck"),
        ("while True: pass", "time limit"),
    ],
)
def test_an_original_that_cannot_be_imported_is_inconclusive(proof_of, harm, reason):
    text = source(ORIGINAL, harm)
    limit = 6.0 if "while" in harm else 120.0
    (proof,) = proof_of(text, text, time_limit_s=limit)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert reason in proof.reason
    assert "\n" not in proof.reason


def test_a_replacement_that_breaks_or_differs_fails(proof_of):
    harms = {
        "sys.exit(3)": "SystemExit",
        'raise RuntimeError("no luck")': "no luck",
        "return x": "cosine",
        "return None": "output",
        "return torch_npu.npu_rms_norm(x, self.weight, 1e-5)[0].unsqueeze(0)": "shape",
        "return torch_npu.npu_rms_norm(x, self.weight, 1e-5)[0].detach()": "gradient",
        "return torch_npu.npu_rms_norm(x, self.weight, 1.0)[0]": "exceeds",
    }
    texts = [source(guarded(harm), GUARD) for harm in harms]
    for proof, reason in zip(
        proof_of(source(ORIGINAL), *texts, dtypes=("float32",)), harms.values(), strict=True
    ):
        assert proof.verdict is Verdict.FAIL
        assert reason in proof.reason


def test_a_replacement_that_ends_the_process_fails_alone(proof_of):
    crash, right = source(guarded("os._exit(0)"), GUARD), source(guarded(), GUARD)
    first, second, third = proof_of(source(ORIGINAL), right, crash, right, dtypes=("float32",))
    assert (first.verdict, second.verdict, third.verdict) == (Verdict.PASS, Verdict.FAIL, Verdict.PASS)
    assert "ended with code 0 while the replaced code runs" in second.reason


def test_an_epsilon_that_is_lost_shows_though_class_and_op_share_a_default(proof_of):
    kept = "variance = x.float().pow(2).mean(-1, keepdim=True)\n" + (
        "return (x.float() * torch.rsqrt(variance + self.eps) * self.weight.float()).to(x.dtype)"
    )

    def text(fused):
        body = f"if torch_npu is not None:\n    {fused}\nelse:\n" + textwrap.indent(kept, "    ")
        return with_eps(source(body, GUARD, "dim, eps=1e-6"))

    right = "return torch_npu.npu_rms_norm(x, self.weight, epsilon=self.eps)[0]"
    lost = "return torch_npu.npu_rms_norm(x, self.weight)[0]"
    original = with_eps(source(kept, parameters="dim, eps=1e-6"))
    one, other = proof_of(original, text(right), text(lost), dtypes=("float32",))
    assert (one.verdict, other.verdict) == (Verdict.PASS, Verdict.FAIL), (one.reason, other.reason)


def with_eps(text):
    return text.replace("self.use_fused_norm = False", "self.use_fused_norm = False\n        self.eps = eps")


def test_a_result_that_the_code_writes_itself_is_no_proof(proof_of):
    forged = (
        "import json, os, pathlib, sys\n"
        "told = {'proof': {'schema': 'fusionkit.proof/1', 'verdict': 'PASS', 'reason': 'I say so', 'runs': []}, 'seal': 'mine'}\n"
        "for folder in (pathlib.Path(), pathlib.Path('..'), pathlib.Path(sys.argv[-1])):\n"
        "    (folder / '0.json').write_text(HELD)\n"
        "os._exit(0)\n"
    )
    for held in ("json.dumps(told)", "'{'"):
        (proof,) = proof_of(source(ORIGINAL, forged.replace("HELD", held)), source(guarded(), GUARD))
        assert proof.verdict is Verdict.INCONCLUSIVE
        assert "wrote a result of its own" in proof.reason


def test_an_unknown_parameter_is_named(proof_of):
    text = source(ORIGINAL, parameters="dim, flux_capacitor")
    (proof,) = proof_of(text, text)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "flux_capacitor" in proof.reason


def test_what_never_runs_proves_nothing_and_other_weights_fail(proof_of):
    other = source(guarded(), GUARD).replace(
        "self.use_fused_norm", "self.more = nn.Parameter(torch.ones(1)); self.use"
    )
    never = source(guarded(condition="x.shape[0] > 99"), GUARD)
    first, second = proof_of(source(ORIGINAL), never, other, dtypes=("float32",))
    assert first.verdict is Verdict.INCONCLUSIVE
    assert "no call of npu_rms_norm" in first.reason
    assert second.verdict is Verdict.FAIL
    assert "more" in second.reason


def test_the_condition_is_made_true(proof_of):
    asked = "from transformers.utils import is_torch_npu_available\nif is_torch_npu_available():\n    import torch_npu\n"
    conditions = {
        'os.environ.get("USE_NPU_NORM") == "1" and torch_npu is not None': GUARD,
        "self.use_fused_norm": GUARD,
        "USE_NPU": GUARD + "USE_NPU = False\n",
        "is_torch_npu_available()": asked,
    }
    texts = [source(guarded(condition=condition), extra) for condition, extra in conditions.items()]
    for proof in proof_of(source(ORIGINAL), *texts, dtypes=("float32",)):
        assert proof.verdict is Verdict.PASS, proof.reason


def test_a_dtype_without_a_proof_is_refused(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(source(ORIGINAL), "utf-8")
    (site,) = sites_of_text(path, source(ORIGINAL))
    with pytest.raises(MisuseError, match="int8"):
        prove(path, site, source(ORIGINAL), dtypes=("int8",))
