"""A pattern body written from regions: literals as they stand, dims from the rank, sizes from the inputs."""

import ast

import pytest
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.match.repairing.region import enclose
from fusionkit.match.repairing.writing import write_body
from fusionkit.match.repairing.writing_sizes import UnexplainedError

A = torch.ops.aten


def region(shape, *steps, dtype=torch.float32, second=None):
    """A chain of (target, args after the first) over x of `shape`; "y" among the arguments is a second input."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        x = graph.placeholder("x")
        x.meta["val"] = torch.empty(shape, dtype=dtype)
        y = graph.placeholder("y")
        y.meta["val"] = torch.empty(second or shape, dtype=dtype)
        node, used = x, False
        for target, *args in steps:
            kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
            used |= "y" in args
            node = graph.call_function(target, (node, *(y if a == "y" else a for a in args)), kwargs)
            values = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
            node.meta["val"] = target(*values, **kwargs)
    return enclose([x, y] if used else [x], [node])


def written(*regions, scalars=None):
    names = ["x", "y"][: len(regions[0].inputs)]
    return tuple(write_body(regions, names, scalars).splitlines())


def run(lines, *tensors):
    """Execute a body as a function of x (and y)."""
    names = ["x", "y"][: len(tensors)]
    text = f"def body({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines)
    scope = {"torch": torch}
    exec(text, scope)  # noqa: S102 - the text under test is a body that this very test had written
    return scope["body"](*tensors)


class TestLiterals:
    def test_stand_as_in_the_graph(self):
        lines = written(region((2, 3), (A.add.Scalar, 9.999999974752427e-07), (A.mean.dim, [1], True)))
        assert lines == (
            "add = torch.ops.aten.add.Scalar(x, 9.999999974752427e-07)",
            "mean = torch.ops.aten.mean.dim(add, [1], True)",
            "return mean",
        )

    def test_dtype_and_device_are_the_first_inputs(self):
        half = {"dtype": torch.bfloat16, "device": torch.device("cpu")}
        lines = written(
            region(
                (2,),
                (A._to_copy.default, {"dtype": torch.float32}),
                (A._to_copy.default, half),
                dtype=torch.bfloat16,
            )
        )
        assert "dtype=torch.float32" in lines[0]
        assert lines[1].endswith("dtype=x.dtype, device=x.device)")

    def test_a_number_that_differs_is_an_argument_or_an_error(self):
        sites = [region((2, 3), (A.add.Scalar, eps)) for eps in (1e-5, 1e-6)]
        with pytest.raises(UnexplainedError, match=r"other differs between the sites \(1e-05, 1e-06\)"):
            written(*sites)
        body = write_body(sites, ["x"], {(0, "other"): "eps"})
        first = body.splitlines()[0]
        assert first == "add = torch.ops.aten.add.Scalar(x, eps)"
        read = {node.id for node in ast.walk(ast.parse(first)) if isinstance(node, ast.Name)}
        assert read - {"add", "torch"} == {"x", "eps"}

    def test_infinity_is_valid_source(self):
        lines = written(region((2,), (A.add.Scalar, float("inf"))))
        assert torch.equal(run(lines, torch.zeros(2)), torch.full((2,), float("inf")))

    def test_an_op_name_that_is_a_keyword_or_taken_gets_another(self):
        lines = written(region((2, 2), (A.neg.default,), (A.neg.default,), (A.mul.Tensor, "y")))
        assert [line.split(" ")[0] for line in lines] == ["neg", "neg_2", "mul", "return"]


class TestDims:
    def test_positive_where_the_ranks_agree(self):
        assert "[2]" in written(*(region((n, 3, 4), (A.mean.dim, [2], True)) for n in (1, 2)))[0]

    def test_counted_from_the_rank_where_they_differ(self):
        lines = written(region((2, 3), (A.mean.dim, [1], True)), region((2, 3, 4), (A.mean.dim, [2], True)))
        assert "[x.dim() - 1]" in lines[0]
        assert run(lines, torch.ones(2, 3, 4, 5)).shape == (2, 3, 4, 1)

    def test_a_dim_that_follows_no_rule_is_an_error(self):
        sites = [region((2, 3, 4), (A.mean.dim, [dim], True)) for dim in (1, 2)]
        with pytest.raises(UnexplainedError, match="dim differs between the sites"):
            written(*sites)


class TestSizes:
    def test_come_from_the_inputs_and_a_pair_stays_a_two(self):
        lines = written(region((3, 8), (A.view.default, [3, 4, 2])))
        assert "[x.shape[0], x.shape[1] // 2, 2]" in lines[0]
        assert run(lines, torch.ones(5, 6)).shape == (5, 3, 2)

    def test_what_one_site_suggests_another_refutes(self):
        """8 is x's last size at the first site only; y's is right at both."""
        sites = [
            region((3, 8), (A.mul.Tensor, "y"), (A.view.default, [-1, 8]), second=(8,)),
            region((3, 8), (A.expand.default, [3, 8]), (A.view.default, [-1, 8])),
        ]
        assert "mul.shape[1]" in written(sites[0])[1]
        assert "view(expand" not in written(sites[1])[1]

    def test_a_half_is_written_as_such(self):
        lines = written(*(region((2, n), (A.slice.Tensor, 1, n // 2, 2**63 - 1)) for n in (8, 12)))
        assert lines[0] == "slice = torch.ops.aten.slice.Tensor(x, 1, x.shape[1] // 2, 9223372036854775807)"

    def test_a_size_that_nothing_explains_is_a_constant_at_one_site_and_an_error_at_two(self):
        one, other = (region((1, 35), (A.slice.Tensor, 1, 0, n)) for n in (11, 13))
        assert "0, 11)" in written(one)[0]
        with pytest.raises(UnexplainedError, match=r"end differs between the sites \(11, 13\)"):
            written(one, other)
