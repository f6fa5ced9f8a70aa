"""Only a documented limit of the fused op accounts for a site; a replacement that does not fit is a miss."""

import pytest
import torch
from shared_models import fresh_block
from torch import nn
from trial_files import write_trial

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.missing import explain_pattern
from fusionkit.match.hits import report_hits
from fusionkit.match.matching import matching_of
from fusionkit.match.uncounted import hits
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.subjects.build import Subject
from fusionkit.subjects.site_counts import expected_counts
from fusionkit.verdict import Verdict


class Two(nn.Module):
    """Two norms of different width: a replacement can be right for one and wrong for the other."""

    def __init__(self):
        super().__init__()
        self.wide = nn.RMSNorm(32, eps=1e-6)
        self.linear = nn.Linear(32, 16)
        self.narrow = nn.RMSNorm(16, eps=1e-6)

    def forward(self, x):
        return self.narrow(self.linear(self.wide(x)))


def two():
    torch.manual_seed(0)
    return Subject(Two().bfloat16().eval(), (torch.randn(2, 3, 32).bfloat16(),), name="two")


def report(tmp_path, body):
    use_target("cpu")
    path = write_trial(tmp_path)
    path.write_text(path.read_text().replace("return torch_npu.npu_rms_norm(x, weight, 1e-6)[0]", body))
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    subject = two()
    matching = matching_of(compile_subject(subject, config))
    counts = expected_counts(subject, ["rms_norm"])
    return report_hits(matching, counts).patterns["rms_norm"], explain_pattern(matching, "rms_norm", counts)


FITS = "torch_npu.npu_rms_norm(x, weight, 1e-6)[0]"
WRONG = {
    "raises": f'if x.shape[-1] == 32: raise RuntimeError("a bug of mine")\n                return {FITS}',
    "raises KeyError": f"y = {{16: 1}}[x.shape[-1]]\n                return {FITS}",
    "exits": f"if x.shape[-1] == 32: raise SystemExit(0)\n                return {FITS}",
    "another dtype": f"y = {FITS}\n                return y.float() if x.shape[-1] == 32 else y",
    "another shape": f"y = {FITS}\n                return y[..., :8] if x.shape[-1] == 32 else y",
    "nothing": f"return None if x.shape[-1] == 32 else {FITS}",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_replacement_that_does_not_fit_is_a_miss(tmp_path, body):
    entry, explained = report(tmp_path, body)
    assert len(entry.hits) == 1
    assert entry.skipped == ()
    assert entry.verdict is Verdict.FAIL, entry.reason
    assert [item.causes[0].type for item in explained.missed] == ["extra_check"]
    assert explained.missed[0].module == "wide"


def test_the_right_one_hits_both(tmp_path):
    entry, explained = report(tmp_path, f"return {FITS}")
    assert entry.verdict is Verdict.PASS, entry.reason
    assert explained.missed == ()


def test_a_weaker_variant_behind_a_cast_does_not_account_for_a_site():
    """A transposed input: the clone keeps the cast variant away, and the bare one sees float32 with a bf16 gain."""

    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = nn.RMSNorm(16, eps=1e-6)
            self.turned = nn.RMSNorm(16, eps=1e-6)

        def forward(self, x):
            return self.turned(self.plain(x).transpose(1, 2).reshape(2, 16, 16).transpose(1, 2))

    torch.manual_seed(0)
    subject = Subject(Turned().bfloat16().eval(), (torch.randn(2, 16, 16).bfloat16(),), name="turned")
    entry = hits(subject, patterns=["rms_norm"]).patterns["rms_norm"]
    assert entry.skipped == ()
    assert (entry.verdict is Verdict.PASS) == (len(entry.hits) == 2)


def test_a_module_that_stands_twice_is_counted_where_it_first_stands():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            block = fresh_block()()
            self.layers = nn.ModuleList([block, block])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    subject = Subject(
        Shared().bfloat16().eval(), (torch.randn(2, 6, 16).bfloat16(),), {"rms_norm": 4}, name="shared"
    )
    report = hits(subject, patterns=["gelu"])
    assert report.patterns["gelu"].verdict is Verdict.PASS, report.patterns["gelu"].reason
    assert len(report.patterns["gelu"].hits) == 2


def test_a_model_that_raises_is_one_line():
    class Raises(nn.Module):
        def __init__(self, error):
            super().__init__()
            self.error = error

        def forward(self, x):
            raise self.error

    for error in (KeyError("q"), SystemExit(0), ZeroDivisionError("by zero"), RuntimeError("shapes")):
        subject = Subject(Raises(error), (torch.ones(2),), name="raises")
        with pytest.raises(MisuseError, match="its plain forward fails with"):
            hits(subject)


def test_changed_options_begin_a_new_backend():
    block, x = fresh_block()().bfloat16().eval(), torch.randn(2, 6, 16).bfloat16()
    options = {"patterns": ["rms_norm"]}
    with torch.no_grad():
        torch.compile(block, backend="fusionkit", options=options)(x)
        first = options["_fusionkit_backend"]
        options["patterns"] = ["gelu"]
        torch.compile(fresh_block()().bfloat16().eval(), backend="fusionkit", options=options)(x)
    assert first.hits() == {"rms_norm": 2}
    assert options["_fusionkit_backend"].hits() == {"gelu": 1}
