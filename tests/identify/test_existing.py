"""torch_npu in the scanned code: found with line and condition, and shown beside candidates of the same op."""

from pathlib import Path

from identify_examples import BRANCHED, MLP, NORM, judged

from fusionkit.identify.candidates import Existing
from fusionkit.identify.existing import uses_of_file, with_existing
from fusionkit.identify.source.files import SourceFile

WRAPPED = """import torch_npu

def norm(x, w, args):
    if args.use_fused_rmsnorm:
        for _ in range(1):
            return torch_npu.npu_rms_norm(x, w)[0]
    elif args.other:
        y = npu_swiglu(x)
    else:
        return torch_npu.npu_fusion_attention_v2(x, x, x, 1, "BSH")
    return [torch_npu.npu_gelu(x) for x in y]
"""


def test_calls_are_found_with_their_innermost_condition():
    uses = uses_of_file(SourceFile(Path("wrap.py"), WRAPPED), "wrap.py")
    assert [(use.op, use.line, use.guard) for use in uses] == [
        ("npu_rms_norm", 6, "args.use_fused_rmsnorm"),
        ("npu_swiglu", 8, "args.other"),
        ("npu_fusion_attention", 10, "not (args.other)"),
        ("npu_gelu", 11, ""),
    ]
    assert uses[0].text == "return torch_npu.npu_rms_norm(x, w)[0]"


def test_a_file_without_torch_npu_has_no_uses():
    assert uses_of_file(SourceFile(Path("m.py"), "inputs = f(input_npus_not)\n" + MLP)) == ()


def test_uses_in_a_class_are_found_too():
    (use,) = uses_of_file(SourceFile(Path("m.py"), BRANCHED))
    assert use.guard == "is_torch_npu_available() and self.fused"


def test_a_candidate_gets_the_uses_of_its_op_the_nearest_first_and_at_most_three():
    names = ["z/far.py", "models/a/near.py", "models/b/other.py", "y/far.py"]
    uses = [Existing("npu_rms_norm", name, 1, "") for name in names] + [
        Existing("npu_gelu", "models/a/g.py", 1, "")
    ]
    (norm,) = with_existing(judged(NORM.format(name="A"), file="models/a/model.py"), uses)
    assert [use.file for use in norm.existing] == ["models/a/near.py", "models/b/other.py", "y/far.py"]
    (mlp,) = with_existing(judged(MLP), uses)
    assert mlp.existing == ()
