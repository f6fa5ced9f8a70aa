"""Each lint rule: a file that breaks it, one that does not, and one that nearly does."""

import json
from pathlib import Path

import pytest

from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.lint import lint_pattern_file
from fusionkit.pattern_files.lint_rules import RULE_NAMES, RULES
from fusionkit.pattern_files.lint_syntax import unconfirmed_flags

use_target("cpu")
PATTERNS = Path(__file__).resolve().parents[2] / "fusionkit" / "patterns"

TEXT = """import torch
import torch_npu
from fusionkit.patterns import PatternBase
{top}

class TrialPattern(PatternBase):
    @staticmethod
    def name():
        return "TrialPattern"

    @staticmethod
    def inputs():
        return [torch.empty(2, 16, dtype={dtype}, device="meta"), torch.empty(16, dtype={dtype}, device="meta")]

    @staticmethod
    def scalars():
        return {scalars}

    @staticmethod
    def pattern({arguments}):
        {pattern}

    @staticmethod
    def replacement({arguments}):
        {replacement}


TrialPatternGroup = [{group}]
"""
WHOLE = {
    "top": "",
    "dtype": "torch.float32",
    "scalars": "{}",
    "arguments": "x, w",
    "pattern": "return torch.sigmoid(x) * w",
    "replacement": "return torch.sigmoid(x) * w",
    "group": "TrialPattern",
}
TWO = {"arguments": "x, w, a=0, b=0", "pattern": "return torch.sigmoid(x * a) * w + b"}
OP = """
LIBRARY = torch.library.Library("{space}", "FRAGMENT")
if not hasattr(torch.ops.{space}, "trial"):
    LIBRARY.define("trial(Tensor{mark} x, Tensor w) -> Tensor")
    LIBRARY.impl("trial", lambda x, w: {body}, "CPU")
    {fake}
"""
FAKE = 'torch.library.register_fake("{space}::trial", lambda x, w: torch.empty_like(x), lib=LIBRARY)'


def op(space, body="torch.sigmoid(x) * w", fake=FAKE, mark=""):
    return {
        "top": OP.format(space=space, body=body, fake=fake.format(space=space), mark=mark),
        "replacement": f"return torch.ops.{space}.trial(x, w)",
    }


def two(**methods):
    """Parts with a second variant in the group: the first one, with these methods exchanged."""
    own = {"name": "lambda: 'TrialWidePattern'"} | methods
    members = ", ".join(f"'{name}': staticmethod({text})" for name, text in own.items())
    return {"group": f"TrialPattern, type('TrialWidePattern', (TrialPattern,), {{{members}}})"}


# rule -> (breaks it, text told), (keeps it), (nearly breaks it)
CASES = {
    "out_argument": (
        {"pattern": "return torch.mul(torch.sigmoid(x), w, out=torch.empty_like(x))"},
        "torch.mul(..., out=...)",
        {},
        {"pattern": "out = torch.sigmoid(x)\n        return dict(output=out * w)['output']"},
    ),
    "returns_nothing": (
        {"pattern": "def f():\n            return x\n        f() * w"},
        "pattern() returns nothing",
        {},
        {"pattern": "def f():\n            x * w\n        f()\n        return x * w"},
    ),
    "mutating_search": (
        {"pattern": "x.sigmoid_()\n        return x * w"},
        "pattern() changes argument 'x' in place (aten.sigmoid_.default, line 21)",
        {},
        {"pattern": "y = torch.sigmoid(x)\n        y.mul_(w)\n        return y"},
    ),
    "unused_argument": (
        {"pattern": "return torch.sigmoid(x) * w.shape[0]"},
        "argument 'w' is not in the trace",
        {},
        {"replacement": "return torch.sigmoid(x)"},
    ),
    "equal_scalars": (
        TWO | {"scalars": '{"a": True, "b": 1.0}'},
        "a, b have one stand-in, True",
        TWO | {"scalars": '{"a": 0.01171875, "b": 0.015625}'},
        TWO | {"scalars": '{"a": 2.0, "b": 3.0}', "pattern": "return torch.sigmoid(x * a).pow(4) * w + b"},
    ),
    "unrepresentable_literal": (
        {"pattern": "return torch.ops.aten.add.Scalar(x, 1e-6) * w"},
        "aten.add.Scalar holds 1e-06 as 9.999999974752427e-07",
        {"pattern": "return torch.ops.aten.add.Scalar(x, 9.999999974752427e-07) * w"},
        {"pattern": "return (x + 1e-6) * w"},
    ),
    "closure_tensor": (
        {"top": "HELD = torch.ones(16)", "pattern": "return x * w + HELD"},
        "is a tensor of the pattern's own",
        {},
        {"top": "HELD = torch.ones(16)", "pattern": "return x * w + HELD.shape[0]"},
    ),
    "no_fake_kernel": (
        op("lint_trial_a", fake="pass"),
        "replacement calls lint_trial_a.trial.default",
        op("lint_trial_b"),
        {"replacement": "return torch_npu.npu_rms_norm(x, w, 1e-6)[0]"},
    ),
    "unannotated_mutation": (
        op("lint_trial_c", "x.mul_(w) * 1"),
        "lint_trial_c.trial.default writes into its argument 'x'",
        op("lint_trial_d"),
        op("lint_trial_e", "x.clone().mul_(w)"),
    ),
    "names": (
        {"top": "class OtherPattern(PatternBase):\n    pass"},
        "class OtherPattern is not a variant of TrialPattern",
        {},
        {"top": "class TrialWidePattern(PatternBase):\n    pass\nFLAG = 'enable_trial'\nclass Other:\n    pass"},
    ),
    "switch_outside_config": (
        {"top": "import os\nON = os.environ.get('TRIAL', '1')"},
        "reads os.environ",
        {},
        {"top": "import os\nHERE = os.path.dirname(__file__)"},
    ),
    "unconfirmed_default_off": (
        {"top": "class FusionPatterns:\n    enable_trial: bool = False"},
        "enable_trial is off by default",
        {"top": "class FusionPatterns:\n    enable_trial: bool = True"},
        {"top": "class FusionPatterns:\n    # default off, confirmed by A. on 2026-01-02\n    enable_trial = False"},
    ),
    "hand_traversal": (
        {"top": "def fuse(graph):\n    for node in list(graph.nodes):\n        node.replace_all_uses_with(node)"},
        "a loop over list(graph.nodes) with replace_all_uses_with(...)",
        {},
        {
            "top": "def count(graph):\n    n = 0\n    for node in graph.nodes:\n        n += 1\n    return n\n"
            "def handler(match):\n    for node in match.nodes:\n        match.graph.erase_node(node)"
        },
    ),
    "entry_keywords": (
        {"top": "def entry(CallFunction, Arg):\n    return CallFunction(torch.relu, Arg(), dtype=Arg())"},
        "CallFunction lists dtype",
        {"top": "def entry(CallFunction, Arg):\n    return CallFunction(torch.relu, Arg())"},
        {"top": "def entry(CallFunction, Arg):\n    return CallFunction(torch.relu, Arg(), _users=2)"},
    ),
    "omitted_keyword": (
        {"pattern": "return torch.nn.functional.gelu(x) * w"},
        "aten.gelu.default without approximate",
        {"pattern": 'return torch.nn.functional.gelu(x, approximate="tanh") * w'},
        {"pattern": "return torch.sigmoid(x + 1e-6) * w"},
    ),
    "duplicate": (
        two(replacement="lambda x, w: torch.sigmoid(x) * (w * 1)"),
        "TrialWidePattern: pattern() equals that of TrialPattern, but replacement() differs",
        two(pattern="lambda x, w: torch.tanh(x) * w"),
        two(pattern="lambda x, w: w * torch.sigmoid(x)", replacement="lambda x, w: torch.sigmoid(x) * (w * 1)"),
    ),
    "not_registrable": (
        {"pattern": "return x @ x + w"},
        "raised RuntimeError",
        {},
        {"pattern": "return x @ x.mT @ x * w"},
    ),
}  # fmt: skip


def lint(folder, parts, name="trial_pattern.py"):
    path = folder / name
    path.write_text(TEXT.format(**WHOLE | parts))
    return lint_pattern_file(path)


def test_every_rule_has_its_cases():
    assert set(CASES) == set(RULE_NAMES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_file_that_breaks_the_rule(tmp_path, rule):
    report = lint(tmp_path, CASES[rule][0])
    (found,) = [item for item in report.findings if item.rule == rule]
    assert CASES[rule][1] in found.what
    assert 0 < found.line <= len((tmp_path / "trial_pattern.py").read_text().splitlines())
    assert found.severity == RULE_NAMES[rule].severity


@pytest.mark.parametrize("rule", CASES)
def test_a_file_that_keeps_the_rule_is_clean(tmp_path, rule):
    assert lint(tmp_path, CASES[rule][2]).findings == ()


@pytest.mark.parametrize("rule", CASES)
def test_a_file_that_nearly_breaks_the_rule_keeps_it(tmp_path, rule):
    assert lint(tmp_path, CASES[rule][3]).findings == ()


def test_a_sum_of_two_tensors_leaves_alpha_open(tmp_path):
    (found,) = lint(tmp_path, {"pattern": "return x + w"}).findings
    assert (found.rule, found.line) == ("omitted_keyword", 21)
    assert "aten.add.Tensor without alpha" in found.what


def test_a_check_of_the_class_may_read_the_keyword(tmp_path):
    own = {"pattern": "return x + w\n\n    @staticmethod\n    def extra_check(match):\n        return True"}
    assert lint(tmp_path, own).findings == ()


MORE = {
    "returns_nothing": [({"pattern": "return x"}, "pattern() gives back its argument 'x'")],
    "equal_scalars": [
        (
            TWO | {"scalars": '{"a": 2.0, "b": 3.0}', "pattern": "return torch.sigmoid(x * a).pow(3) * w + b"},
            "stand-in 3.0 of b is a literal of the trace too",
        )
    ],
    "unrepresentable_literal": [
        ({"dtype": "torch.float16", "pattern": "return (x + 1e-9) * w"}, "1e-09 is 0.0 in float16"),
        ({"dtype": "torch.float16", "pattern": "return (x - 1e6) * w"}, "1000000.0 is inf in float16"),
    ],
    "closure_tensor": [({"pattern": "return x * w + torch.tensor(2.0)"}, "is a tensor of the pattern's own")],
    "switch_outside_config": [
        ({"top": "from os import getenv"}, "reads os.getenv"),
        ({"top": "import argparse"}, "reads argparse"),
        ({"top": "import sys\nON = '--fuse' in sys.argv"}, "reads sys.argv"),
    ],
    "hand_traversal": [
        ({"top": "def _rewrite_norm(graph):\n    pass"}, "function _rewrite_norm rewrites a graph by hand"),
        (
            {"top": "def f(g):\n    for n in g.find_nodes(op='call_function'):\n        n.args = ()"},
            "with n.args = ...",
        ),
    ],
    "names": [
        ({"top": "FLAG = 'enable_other'"}, "flag enable_other is not enable_trial"),
        ({"top": "def register_other_graph_entries(p):\n    p[('call_function', 1)].append(None)"}, "register_trial_"),
    ],
    "unused_argument": [
        (TWO | {"scalars": '{"a": 0.0113377, "b": 2.0}', "pattern": "return torch.sigmoid(x) * w + b"}, "'a'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "parts", "told"), [(rule, *case) for rule, cases in MORE.items() for case in cases]
)
def test_other_ways_to_break_a_rule(tmp_path, rule, parts, told):
    found = [item for item in lint(tmp_path, parts).findings if item.rule == rule]
    assert any(told in item.what for item in found), found


SWAPPED = {
    "inputs": "lambda: [torch.empty(16, device='meta'), torch.empty(2, 16, device='meta')]",
    "pattern": "lambda gain, y: torch.sigmoid(y) * gain",
    "replacement": "lambda gain, y: torch.sigmoid(y) * gain",
}
SCALED = {
    "arguments": "x, w, a=0",
    "scalars": '{"a": 2.5}',
    "pattern": "return torch.sigmoid(x * a) * w",
    "replacement": "return torch.sigmoid(x * a) * w",
}


@pytest.mark.parametrize(
    "parts",
    [
        two(),
        two(**SWAPPED),
        {"group": "TrialPattern, TrialPattern"},
        SCALED | two(scalars="lambda: {'a': 3.5}"),
    ],
    ids=["name alone", "arguments renamed and swapped", "one class twice", "another stand-in"],
)
def test_variants_that_are_equal_throughout_are_a_warning(tmp_path, parts):
    (found,) = lint(tmp_path, parts).findings
    assert (found.rule, found.severity) == ("duplicate", "warning")
    assert found.what.endswith("pattern() equals that of TrialPattern, and so does replacement()")


def test_equal_variants_on_other_dtypes_are_the_product_of_a_factory(tmp_path):
    half = "lambda: [torch.empty(s, dtype=torch.half, device='meta') for s in ((2, 16), (16,))]"
    assert lint(tmp_path, two(inputs=half)).findings == ()


def test_a_class_without_scalars_is_linted(tmp_path):
    parts = {"top": "class PatternBase: pass", "pattern": "return torch.sigmoid(x) + 1e-06"}
    text = TEXT.format(**WHOLE | parts)
    path = tmp_path / "trial_pattern.py"
    path.write_text(text.replace("    @staticmethod\n    def scalars():\n        return {}\n\n", ""))
    assert "scalars" not in path.read_text()
    assert [item.rule for item in lint_pattern_file(path).findings] == ["unused_argument"]


SLICED = "torch.sigmoid(x[:, :a] * w[:a])"


@pytest.mark.parametrize(
    ("search", "what"),
    [
        (SLICED, []),
        (f"{SLICED} * x[:, a:]", []),  # no other bound fits the inputs
        (f"{SLICED} + 8", ["stand-in 8 of a is a literal of the trace too"]),
        ("torch.sigmoid(x.view(-1, a) * w[:a])", []),
    ],
)
def test_an_int_stand_in_may_be_a_slice_bound_or_a_size(tmp_path, search, what):
    parts = {"scalars": '{"a": 8}', "arguments": "x, w, a=8", "pattern": f"return {search}"}
    parts["replacement"] = parts["pattern"]
    assert [item.what for item in lint(tmp_path, parts).findings] == [
        f"TrialPattern: {each}" for each in what
    ]


@pytest.mark.parametrize("value", ["[1]", "'1'", "None", "float('nan')", "torch.ones(2)"])
def test_a_stand_in_that_is_no_number_is_one_finding(tmp_path, value):
    parts = TWO | {"scalars": f'{{"a": {value}, "b": 2.0}}'}
    (found,) = lint(tmp_path, parts | {"replacement": parts["pattern"]}).findings
    assert found.rule == "not_registrable"
    assert "scalars() must map names to numbers" in found.what


def test_int_stand_ins_that_differ_make_no_other_pattern(tmp_path):
    parts = {
        "scalars": '{"a": 4}', "arguments": "x, w, a=8", "pattern": f"return {SLICED}", "replacement": f"return {SLICED}",
    }  # fmt: skip
    (found,) = lint(tmp_path, parts | two(scalars="lambda: {'a': 6}")).findings
    assert (found.rule, found.severity) == ("duplicate", "warning")


def test_file_and_group_names_are_held_against_each_other(tmp_path):
    told = [item.what for item in lint(tmp_path, {}, "llama_norm.py").findings]
    assert told == [
        "file llama_norm.py is not named llama_norm_pattern.py",
        "class TrialPattern is not a variant of LlamaNormPattern",
        "group TrialPatternGroup is not LlamaNormPatternGroup",
    ]


def test_an_op_goes_by_the_name_of_the_fusion(tmp_path):
    parts = op("lint_trial_f")
    parts = {
        key: value.replace("trial(", "other(").replace("::trial", "::other") for key, value in parts.items()
    }
    parts["top"] = parts["top"].replace('"trial"', '"other"')
    (found,) = lint(tmp_path, parts).findings
    assert found.what == "op other is not trial"


def test_several_variants_tell_one_thing_once(tmp_path):
    parts = {"pattern": "return torch.sigmoid(x) * w.shape[0]"}
    path = tmp_path / "trial_pattern.py"
    path.write_text(
        TEXT.format(**WHOLE | parts).replace("= [TrialPattern]", "= [TrialPattern, TrialPattern]")
    )
    assert [item.rule for item in lint_pattern_file(path).findings] == ["unused_argument"]


def test_the_flag_of_the_files_own_fusion_is_looked_at_in_a_checkout_around_it(tmp_path):
    (tmp_path / "patterns").mkdir()
    (tmp_path / "compiliation_config.py").write_text(
        "class FusionPatterns:\n    enable_trial: bool = False\n    enable_other: bool = False\n"
    )
    assert [item.what for item in lint(tmp_path / "patterns", {}).findings] == [
        "enable_trial is off by default"
    ]


def test_a_flag_is_confirmed_above_it_or_beside_it():
    text = (
        "class F:\n    enable_a = False  # Confirmed by B.\n"
        "    # 默认关，已与用户确认\n    enable_b = False\n    enable_c = False\n"
    )
    assert [item.what for item in unconfirmed_flags(text)] == ["enable_c is off by default"]


@pytest.mark.parametrize("path", sorted(PATTERNS.glob("*_pattern.py")), ids=lambda path: path.stem)
def test_the_kits_own_pattern_files_are_clean(path):
    """The keywords that they omit are compared by the kit itself."""
    assert {item.rule for item in lint_pattern_file(path).findings} <= {"omitted_keyword"}


def test_a_file_in_the_form_of_mindiesd_is_linted(tmp_path):
    text = TEXT.replace("from fusionkit.patterns", "from ..passes.register_pattern_to_pass")
    path = tmp_path / "trial_pattern.py"
    path.write_text(text.format(**WHOLE))
    assert not lint_pattern_file(path).findings


class TestCommand:
    def test_clean_is_0(self, tmp_path, capsys):
        lint(tmp_path, {})
        assert main(["lint", str(tmp_path / "trial_pattern.py")]) == 0
        assert capsys.readouterr().out.endswith("trial_pattern.py: 0 error(s), 0 warning(s)\n")

    def test_an_error_is_1_and_told_with_line_and_way_out(self, tmp_path, capsys):
        lint(tmp_path, CASES["unrepresentable_literal"][0])
        assert main(["lint", str(tmp_path / "trial_pattern.py")]) == 1
        first = capsys.readouterr().out.splitlines()[0]
        assert "trial_pattern.py:21: error unrepresentable_literal: " in first
        assert first.endswith("write 9.999999974752427e-07")

    def test_a_warning_alone_is_0(self, tmp_path, capsys):
        lint(tmp_path, CASES["entry_keywords"][0])
        assert main(["lint", str(tmp_path / "trial_pattern.py"), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["schema"] == "fusionkit.lint/1"
        assert told["errors"] == 0
        assert [item["rule"] for item in told["findings"]] == ["entry_keywords"]

    @pytest.mark.parametrize("text", ["def f(:", "import no_such_module", "x = 1"])
    def test_no_pattern_file_is_2(self, tmp_path, capsys, text):
        path = tmp_path / "trial_pattern.py"
        path.write_text(text)
        assert main(["lint", str(path)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1

    def test_a_missing_file_is_2(self, tmp_path):
        assert main(["lint", str(tmp_path / "nowhere.py")]) == 2
        with pytest.raises(MisuseError, match="cannot read"):
            lint_pattern_file(tmp_path / "nowhere.py")
