"""references/adding-a-fusion.md, followed in a copy of the kit: five files, and the fusion works."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "references" / "adding-a-fusion.md").read_text("utf-8")
MODEL = """
import torch
from torch import nn


def build(size, dtype):
    layers = [nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.LayerNorm(16, eps=1e-3)]
    model = nn.Sequential(*layers).to(dtype)
    return model, {"input": torch.randn(2, 4, 16, dtype=dtype)}
"""


def blocks() -> dict[str, str]:
    """The page's steps: file -> code."""
    section = PAGE.partition("## A fusion")[2].partition("\n## ")[0]
    steps = re.findall(r"^\*\*\d\. `([^`]+)`\*\*.*?```(?:python|text)\n(.*?)```", section, re.M | re.S)
    assert [int(n) for n in re.findall(r"^\*\*(\d)\. ", section, re.M)] == list(range(1, len(steps) + 1))
    return dict(steps)


def insert(path: Path, anchor: str, code: str) -> None:
    """Put `code` behind the line `anchor`."""
    text = path.read_text("utf-8")
    assert text.count(anchor) == 1, (path.name, anchor)
    path.write_text(text.replace(anchor, anchor + code), "utf-8")


def follow(root: Path, *, until: int = 5) -> None:
    """Do the first `until` steps of the page in a copy of the kit."""
    steps = blocks()
    gelu = 'module="fusionkit.patterns.gelu_pattern", group="GeluPatternGroup", flag="enable_gelu"'
    anchors = {
        "fusionkit/fusions.py": f"            {gelu}\n        ),\n    ),\n",
        "fusionkit/patterns/__init__.py": "from fusionkit.patterns.gelu_pattern import GeluPatternGroup\n",
        "fusionkit/passes/registry.py": '    "enable_gelu": ("GeluPatternGroup", "fusionkit.patterns"),\n',
        "fusionkit/config.py": "    enable_gelu: bool = True\n",
    }
    for name, code in list(steps.items())[:until]:
        if name in anchors:
            insert(root / name, anchors[name], code)
        else:
            (root / name).write_text(code, "utf-8")
    if until > 2:
        insert(
            root / "fusionkit/patterns/__init__.py",
            '    "GeluPatternGroup",\n',
            '    "LayerNormPatternGroup",\n',
        )


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the kit with the page's five steps, and a model with two layer norms."""
    root = tmp_path_factory.mktemp("kit")
    for folder in ("fusionkit", "notebooks"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    follow(root)
    (root / "my_norms.py").write_text(MODEL, "utf-8")
    (root / "my_norms.yaml").write_text(
        "subject: my_norms:build\nexpected_sites:\n  layer_norm: 2\n", "utf-8"
    )
    return root


def fusionkit(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fusionkit", *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_five_files_are_touched(kit: Path) -> None:
    def differing(comparison: filecmp.dircmp[str], folder: str) -> list[str]:
        here = [
            f"{folder}/{name}"
            for name in (*comparison.diff_files, *comparison.right_only)
            if name != "__pycache__"
        ]
        return here + [
            n for name, sub in comparison.subdirs.items() for n in differing(sub, f"{folder}/{name}")
        ]

    assert sorted(differing(filecmp.dircmp(ROOT / "fusionkit", kit / "fusionkit"), "fusionkit")) == sorted(
        blocks()
    )
    assert len(blocks()) <= 5
    assert differing(filecmp.dircmp(ROOT / "notebooks", kit / "notebooks"), "notebooks") == []


def test_its_sites_are_counted_and_hit(kit: Path) -> None:
    done = fusionkit(kit, "hits", "my_norms:build", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    entry = json.loads(done.stdout)["patterns"]["layer_norm"]
    assert (entry["hits"], entry["expected_sites"], entry["verdict"]) == (2, 2, "PASS")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (2, "row layer_norm of fusions has no flag enable_layer_norm in config.FusionPatterns"),
        (3, "group LayerNormPatternGroup is exported but not registered"),
        (4, "registry entry enable_layer_norm has no flag in config.FusionPatterns"),
    ],
)
def test_a_missing_registration_is_named(tmp_path: Path, steps: int, said: str) -> None:
    shutil.copytree(ROOT / "fusionkit", tmp_path / "fusionkit", ignore=shutil.ignore_patterns("__pycache__"))
    follow(tmp_path, until=steps)
    code = "from fusionkit.passes.registry import unreachable; print(chr(10).join(unreachable()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert said in done.stdout.splitlines(), done.stdout + done.stderr


BOTH = """
import torch
from torch import nn


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.scaled = nn.LayerNorm(16), nn.LayerNorm(16, elementwise_affine=False, eps=1e-6)
        self.linear, self.modulation = nn.Linear(16, 16), nn.Linear(16, 32)

    def forward(self, input, condition):
        scale, shift = self.modulation(condition).chunk(2, dim=-1)
        x = self.linear(torch.relu(self.plain(input)))
        return self.scaled(x) * (1 + scale[:, None]) + shift[:, None]


def build(size, dtype):
    inputs = {"input": torch.randn(2, 4, 16, dtype=dtype), "condition": torch.randn(2, 16, dtype=dtype)}
    return Both().to(dtype), inputs
"""


@pytest.mark.acceptance
def test_hits_of_two_fusions_with_one_op_are_verified_by_their_sum(kit: Path) -> None:
    (kit / "both_norms.py").write_text(BOTH, "utf-8")
    lines = "subject: both_norms:build\npatterns: [ada_layer_norm, layer_norm]\n"
    (kit / "both_norms.yaml").write_text(lines, "utf-8")
    words = ["--notebooks", "06", "--out", "both", "-P", "second_target=null"]
    done = fusionkit(kit, "run", "both_norms.yaml", *words)
    phase = json.loads((kit / "both" / "phases" / "06.json").read_text("utf-8"))
    hits = {name: entry["hits"] for name, entry in phase["hits"].items()}
    assert hits == {"ada_layer_norm": 1, "layer_norm": 1}, done.stdout + done.stderr
    verdicts = {gate["name"]: gate["verdict"] for gate in phase["gates"]}
    assert (
        verdicts.pop("hits") == "INCONCLUSIVE"
    )  # nothing counts the sites of ada_layer_norm in a model of one's own
    assert set(verdicts.values()) == {"PASS"}
    done = fusionkit(kit, "verify", "both")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.acceptance
def test_all_phases_up_to_the_sixth_know_it(kit: Path) -> None:
    words = ["--notebooks", "01,02,03,04,05,06", "--out", "evidence", "-P", "second_target=null"]
    done = fusionkit(kit, "run", "my_norms.yaml", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    phases = [
        json.loads((kit / "evidence" / "phases" / f"0{n}.json").read_text("utf-8")) for n in range(1, 7)
    ]
    assert [phase["verdict"] for phase in phases] == ["PASS"] * 6
    assert phases[5]["hits"]["layer_norm"]["hits"] == 2
