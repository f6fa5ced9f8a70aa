"""Scans of folders: what is found, told and kept, in one process and in several."""

import difflib
import json
import shutil

import pytest

from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.identify.reading import read_source
from fusionkit.identify.replacing import replace_site
from fusionkit.identify.scan import scan

NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
"""
CHILD = """
from .base import Norm


class Child(Norm):
    pass


class Other(Norm):
    def forward(self, x):
        return x
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "base.py").write_text(NORM)
    (folder / "child.py").write_text(CHILD)
    (folder / "broken.py").write_text("def f(:\n")
    return folder


def told(report):
    return [(item.file, item.symbol, item.op) for item in report.candidates]


def test_a_bad_file_is_listed_and_stops_nothing(package):
    report = scan([package])
    assert report.files == 3
    assert told(report) == [("base.py", "Norm", "npu_rms_norm")]
    assert [(item.file, "line 1" in item.reason) for item in report.failed] == [("broken.py", True)]


def test_a_base_that_is_not_scanned_is_told_at_the_class_that_inherits(package):
    report = scan([package / "child.py"])
    assert told(report) == [("child.py", "Child", "npu_rms_norm")]
    assert report.candidates[0].inherited_from == "base.py:Norm"


def test_several_processes_find_the_same(package):
    for number in range(30):
        (package / f"more{number}.py").write_text(NORM)
    one, two = scan([package], processes=1, cache=False), scan([package], processes=2, cache=False)
    assert one == two
    assert len(one.candidates) == 31


def test_what_is_kept_is_read_again_when_anything_changed(package):
    def symbols():
        return [item.symbol for item in scan([package / "child.py"]).candidates]

    lines = []
    scan([package / "child.py"], tell=lines.append)
    assert lines == ["read 1 of 1 files"]
    lines.clear()
    assert symbols() == ["Child"]
    scan([package / "child.py"], tell=lines.append)
    assert lines == []  # kept
    (package / "base.py").write_text(NORM.replace("pow(2)", "pow(3)"))  # what it inherits is no norm any more
    assert symbols() == []
    (package / "child.py").write_text(NORM)
    assert symbols() == ["Norm"]


def test_what_is_kept_of_a_class_alone_does_not_count_twice_beside_its_base(package):
    alone, both = [package / "child.py"], [package]
    assert told(scan(alone)) == [("child.py", "Child", "npu_rms_norm")]
    assert told(scan(both)) == told(scan(both, cache=False)) == [("base.py", "Norm", "npu_rms_norm")]
    assert told(scan(alone)) == [("child.py", "Child", "npu_rms_norm")]  # and the other way round


TWINS = """
import torch
from torch import nn

try:
    from fast import rotate

    class Norm(nn.Module):
        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def norm(x, w):
        return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
except ImportError:
    if SMALL:

        class Norm(nn.Module):
            def forward(self, x):
                return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    else:

        class Norm(nn.Module):
            def forward(self, x):
                return x

    def norm(x, w):
        return (w + 1) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
"""


def test_symbols_of_one_name_in_several_branches_are_all_found_and_replaced_each_by_itself(tmp_path):
    path = tmp_path / "twins.py"
    path.write_text(TWINS)
    found = scan([path], cache=False)
    assert [(item.id, item.line) for item in found.candidates] == [
        ("npu_rms_norm:twins.py:Norm", 8),
        ("npu_rms_norm:twins.py:norm", 12),
        ("npu_rms_norm:twins.py:Norm#2", 17),
        ("npu_rms_norm:twins.py:norm#2", 26),
    ]
    assert scan([path]) == scan([path]) == found
    for item in found.candidates:
        written = replace_site(read_source(path), item.site)
        matcher = difflib.SequenceMatcher(None, TWINS.splitlines(), written.new_text.splitlines(), False)
        changed = [
            (first, last) for tag, first, last, _, _ in matcher.get_opcodes() if first > 4 and tag != "equal"
        ]
        assert {item.line <= first < last + 1 <= item.end_line + 1 for first, last in changed} == {True}


def test_the_kept_result_equals_the_fresh_one(package):
    fresh = scan([package])
    assert scan([package]) == fresh
    kept = next((package.parent / "cache" / "scans").glob("*.json"))
    kept.write_text("{")
    assert scan([package]) == fresh


def test_a_generated_file_stands_for_its_source(tmp_path):
    (tmp_path / "modular_x.py").write_text(NORM)
    (tmp_path / "modeling_x.py").write_text(
        "#  This file was automatically generated from src/models/x/modular_x.py.\n" + NORM
    )
    report = scan([tmp_path])
    assert told(report) == [("modeling_x.py", "Norm", "npu_rms_norm")]
    assert report.candidates[0].generated_from == "src/models/x/modular_x.py"
    shutil.move(tmp_path / "modeling_x.py", tmp_path / "elsewhere.py")
    assert ("modular_x.py", "Norm", "npu_rms_norm") in told(scan([tmp_path]))


def test_a_file_that_takes_too_long_is_given_up(package, monkeypatch):
    import fusionkit.identify.scan_worker as worker

    def endless(_):
        while True:
            pass

    monkeypatch.setattr(worker, "LONGEST_S", 1)
    monkeypatch.setattr(worker, "sites_of_file", endless)
    report = scan([package / "base.py"], cache=False)
    assert [item.reason for item in report.failed] == ["takes longer than 1 s to read"]


def test_the_command(package, capsys):
    assert main(["scan", str(package), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "fusionkit.scan/1"
    first = report["candidates"][0]
    assert (first["op"], first["symbol"], first["line"], first["end_line"]) == ("npu_rms_norm", "Norm", 6, 12)
    assert first["recommend"] in ("yes", "defer", "no")
    assert first["proof"] is None
    assert [item["file"] for item in report["failed"]] == ["broken.py"]
    assert main(["scan", str(package)]) == 0
    out = capsys.readouterr().out
    assert "base.py:6 Norm: npu_rms_norm: " in out
    assert "3 files, 1 candidates" in out
    assert "broken.py: not read: " in out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("nowhere/at/all",), "neither a file, a folder nor an installed package"),
        ((".", "--op", "npu_magic"), "npu_magic: no such op"),
        (("",), "an empty name is no path"),
        ((".", "--processes", "0"), "'0' is no number from 1 to"),
        ((".", "--processes", "5000"), "'5000' is no number from 1 to"),
        ((".", "--time-limit", "-1"), "is no number of seconds above 0"),
        ((".", "--time-limit", "nan"), "is no number of seconds above 0"),
        ((".", "--profile", "nosuch.csv"), "nosuch.csv: no such file"),
        ((".", "--wheel", "nosuch.whl"), "nosuch.whl: no such file"),
    ],
)
def test_misuse(capsys, tmp_path, monkeypatch, words, wanted):
    (tmp_path / "x.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["scan", *words])
    except SystemExit as ended:  # what the parser itself refuses
        code = ended.code
    assert code == 2
    assert wanted in capsys.readouterr().err


def test_a_folder_without_python_is_misuse(tmp_path):
    with pytest.raises(MisuseError, match="no Python file there"):
        scan([tmp_path])
