"""A hand-written graph entry that misses is explained like a class is."""

import textwrap

import pytest
from shared_models import compiled, counts_of

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.entry_variants import graph_of
from fusionkit.match.explanation.missing import explain_pattern
from fusionkit.match.matching import match_groups
from fusionkit.npu.target import use_target
from fusionkit.passes.trial import trial_groups

ENTRY = """
    import operator
    import torch
    from torch._inductor.pattern_matcher import (
        MULTIPLE, Arg, CallFunction, GraphPatternEntry, Ignored,
    )
    A = torch.ops.aten

    def fuse_norm(match, *args):
        node = match.output_node()
        x, weight = args[0], args[-1]
        with node.graph.inserting_before(node):
            fused = node.graph.call_function(torch.ops.npu.npu_rms_norm.default, (x, weight, 1e-6))
            first = node.graph.call_function(operator.getitem, (fused, 0))
        node.replace_all_uses_with(first)
        match.erase_nodes()

    def register_norm_graph_entries(pattern_pass):
        cast = CallFunction(A._to_copy.default, Arg(), _users=MULTIPLE)
        mean = CallFunction(A.mean.dim, CallFunction(A.pow.Tensor_Scalar, cast, Ignored()), Ignored(), Ignored())
        scale = CallFunction(A.rsqrt.default, CallFunction(A.add.{overload}, mean, Ignored()))
        normed = CallFunction(A.mul.Tensor, {operands})
        end = CallFunction(A._to_copy.default, CallFunction(A.mul.Tensor, normed, Arg()))
        GraphPatternEntry(pattern=end, extra_check=lambda match: True, handler=fuse_norm).register(pattern_pass)
    """


def report(tmp_path, overload="Scalar", operands="cast, scale"):
    use_target("cpu")
    path = tmp_path / "norm_pattern.py"
    path.write_text(textwrap.dedent(ENTRY).replace("{overload}", overload).replace("{operands}", operands))
    groups = trial_groups(path)
    plain = compiled("flux", plain=True)
    matching = match_groups(plain.capture(), groups, "before-freezing")
    return explain_pattern(matching, "rms_norm", counts_of("flux"))


def test_an_entry_that_hits_gets_no_cause(tmp_path):
    found = report(tmp_path)
    assert len(found.hits.hits) == 12
    assert found.missed == ()


def test_an_entry_that_misses_names_both_differences(tmp_path):
    found = report(tmp_path, "Tensor", "scale, cast")
    assert len(found.hits.hits) == 0
    assert len(found.missed) == 12
    first = found.missed[0]
    assert first.pattern == "fuse_norm"
    assert [(cause.type, cause.graph_node) for cause in first.causes] == [
        ("argument_order", "mul_16"),
        ("overload", "add_6"),
    ]


def test_an_expression_without_a_form_is_refused():
    from torch._inductor.pattern_matcher import CallMethod

    with pytest.raises(MisuseError, match=r"entry odd: CallMethod in its tree cannot be explained"):
        graph_of(CallMethod("view"), "odd")
