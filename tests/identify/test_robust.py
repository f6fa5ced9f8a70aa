"""What a scan meets in the wild: nothing of it is run, nothing of it stops the scan, and each is told in one line."""

import contextlib
import json
import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identify_examples import MLP

from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.identify.gathering import gather
from fusionkit.identify.reading import UnreadableError, parse, read_source
from fusionkit.identify.report import report_text
from fusionkit.identify.scan import scan
from fusionkit.identify.scan_file import sites_of_file

NORM = """
class Norm:
    def __init__(self, torch):
        self.weight = torch.ones(3)

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6)
"""
BROKEN = {
    "syntax error": (b"def f(:\n  pass\n", "line 1"),
    "Python 2": (b"def f(x):\n    print x\n", "Python 2, or a syntax error in line 2"),
    "null bytes": (b"x = 1\x00\n", "no Python source"),
    "wrong encoding": (b"# \xff\xfe caf\xe9\nx = '\xe9'\n", "declare the encoding"),
    "unknown encoding": (b"# -*- coding: klingon -*-\nx = 1\n", "klingon"),
    "nested parentheses": (b"x = " + b"(" * 5000 + b"1" + b")" * 5000 + b"\n", "nested"),
    "nested blocks": (b"".join(b" " * i + b"if x:\n" for i in range(400)) + b" " * 400 + b"pass\n", "line"),
}


@pytest.mark.parametrize(("data", "told"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_told_in_one_line(tmp_path, data, told):
    path = tmp_path / "broken.py"
    path.write_bytes(data)
    with pytest.raises(UnreadableError) as error:
        read_source(path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1251", "gbk"])
def test_other_encodings_are_read(tmp_path, encoding):
    head = "" if encoding.startswith("utf-8") else f"# -*- coding: {encoding} -*-\n"
    path = tmp_path / "model.py"
    path.write_bytes((head + "import torch\n# x\n" + NORM).encode(encoding))
    assert [site.op for site in sites_of_file(read_source(path))] == ["npu_rms_norm"]


def test_nothing_that_is_scanned_runs(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    path = tmp_path / "evil.py"
    path.write_text(
        f"import shutil, torch\nshutil.rmtree({str(kept)!r})\nraise SystemExit(1)\n" + NORM, encoding="utf-8"
    )
    assert [site.symbol for site in sites_of_file(read_source(path))] == ["Norm"]
    assert kept.is_dir()


def test_a_megabyte_is_read(tmp_path):
    text = (
        "import torch\n"
        + NORM
        + "".join(f"def f{i}(x, y):\n    return x * {i} + y ** 2\n" for i in range(25_000))
    )
    assert len(text) > 1_000_000
    assert [site.symbol for site in sites_of_file(parse(tmp_path / "large.py", text.encode()))] == ["Norm"]


def test_long_chains_end():
    """Values are shared, so that what is written in 200 lines may stand for 2 ** 200 factors."""
    doubled = (
        "import torch\ndef f(x, mask):\n"
        + "    x = x * x\n" * 200
        + "    return torch.nn.functional.silu(x) * x\n"
    )
    branched = "import torch\ndef f(x, mask):\n" + textwrap.indent(
        "if mask:\n    x = x + x\nelse:\n    x = x * torch.rsqrt(x.pow(2).mean(-1) + 1)\n" * 100, "    "
    )
    looped = (
        "import torch\ndef f(x):\n"
        + "".join(" " * (4 + i) + f"for i{i} in x:\n" for i in range(12))
        + " " * 16
        + "x = x.softmax(-1) @ (x * torch.sigmoid(x))\n"
    )
    for text in (doubled, branched, looped):
        sites_of_file(parse("chain.py", text.encode()))


def test_a_sum_of_thousands_is_told_or_read(tmp_path):
    text = "import torch\ndef f(x):\n    return " + " + ".join(["x"] * 5000) + "\n"
    with contextlib.suppress(UnreadableError):
        assert sites_of_file(parse(tmp_path / "sum.py", text.encode())) == []


def test_links_that_go_in_circles_end(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.py").write_text(NORM)
    os.symlink(tmp_path, tmp_path / "a" / "again")
    os.symlink(tmp_path / "a" / "model.py", tmp_path / "a" / "same.py")
    assert [path.name for path in gather([tmp_path])] == ["model.py"]


def test_packages_are_found_without_being_imported(monkeypatch, tmp_path):
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "inner.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [path.name for path in gather(["loud_package"])] == ["__init__.py", "inner.py"]
    assert [path.name for path in gather(["loud_package.inner"])] == ["inner.py"]
    for name in ("no_such_package", "loud_package.absent", "no/such/folder"):
        with pytest.raises(MisuseError, match="neither a file"):
            gather([name])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_told(data):
    told = ""
    try:
        sites_of_file(parse("any.py", data))
    except UnreadableError as error:
        told = str(error)
    assert "\n" not in told


PIECES = st.lists(
    st.sampled_from(
        [
            "x = x * y", "y = torch.rsqrt(x.pow(2).mean(-1) + 1)", "x, y = y.chunk(2)", "if y:\n        x = -x",
            "for z in y:\n        x = z * torch.sigmoid(z)", "x[y] = 0", "x.add_(y)", "y = torch.where(x, y, 0)",
            "x = torch.nn.functional.softmax(x @ y, -1) @ y", "x += y", "y = self.norm(x + y)", "x = cos * x + sin * y",
            "with y as x:\n        y = x", "y = [x for x in y if x]", "x = y if x else -y", "del x", "x: int = y",
            "try:\n        x = y\n    except ValueError:\n        y = x", "while y:\n        x = y * x", "return x",
        ]
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(PIECES)
def test_any_statements_in_any_order_are_read(pieces):
    body = "".join(f"    {piece}\n" for piece in pieces) or "    pass\n"
    code = "import torch\nclass M:\n  def forward(self, x, y, cos, sin):\n" + body
    sites_of_file(parse("any.py", code.encode()))


def test_numbers_that_python_refuses_to_write_out(tmp_path):
    path = tmp_path / "huge.py"
    number = "0x" + "f" * 9000
    path.write_text(f"import torch\nx = {number}\ndef f(x):\n    x[{number}] = {number}\n    return x\n")
    assert sites_of_file(read_source(path)) == []


def test_a_form_feed_and_unicode_line_ends_do_not_move_lines(tmp_path):
    path = tmp_path / "fed.py"
    path.write_text("# \x0c and \u2028 \x1c\n\x0c\n" + NORM, encoding="utf-8")
    report = scan([path], cache=False)
    assert [(item.symbol, item.places) for item in report.candidates] == [("Norm", (9,))]
    text = report_text(report, lang="en")
    assert "self.weight * x * torch.rsqrt" in text
    assert "broke on it" not in text


def test_pipes_and_devices_are_not_opened(tmp_path):
    (tmp_path / "model.py").write_text(NORM)
    os.mkfifo(tmp_path / "pipe.py")
    os.symlink("/dev/zero", tmp_path / "zero.py")
    assert [path.name for path in gather([tmp_path])] == ["model.py"]
    with pytest.raises(MisuseError, match="no regular file"):
        gather([tmp_path / "pipe.py"])


def test_pipes_and_devices_beside_a_candidate_are_not_opened_for_its_switch(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n" + MLP
    )
    os.mkfifo(tmp_path / "pipe.py")
    os.symlink("/dev/zero", tmp_path / "zero.py")
    command = [sys.executable, "-m", "fusionkit", "scan", str(tmp_path), "--json", "--no-cache"]
    told = subprocess.run(command, capture_output=True, timeout=120, check=True).stdout
    assert [item["replacement"]["refused"] for item in json.loads(told)["candidates"]] == [None]


def test_a_name_that_is_not_unicode_is_told_and_stops_nothing(tmp_path):
    (tmp_path / "model.py").write_text("import torch\n" + NORM)
    with open(os.fsencode(tmp_path) + b"/caf\xe9.py", "w") as stream:
        stream.write("import torch\n" + NORM)
    report = scan([tmp_path])
    assert [item.file for item in report.candidates] == ["caf\\xe9.py", "model.py"]
    json.dumps(report.to_dict()).encode()


def test_a_fault_of_a_rule_costs_one_file(tmp_path, monkeypatch):
    def broken(_):
        raise KeyError("a rule's own fault")

    (tmp_path / "model.py").write_text(NORM)
    monkeypatch.setattr("fusionkit.identify.scan_worker.sites_of_file", broken)
    report = scan([tmp_path], cache=False)
    assert ["the scan itself broke on it: KeyError" in item.reason for item in report.failed] == [True]


def test_a_report_is_never_written_over_source(tmp_path, capsys):
    source = tmp_path / "model.py"
    source.write_text(NORM)
    assert main(["scan", str(source), "--out", str(source)]) == 2
    assert "no source is written over" in capsys.readouterr().err
    assert source.read_text() == NORM
