"""Regions of a graph: between inputs and outputs, from names and lines, and every other one of the same form."""

import operator

import pytest
import torch
import torch.fx
from shared_models import compiled
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.capture.sources import source_line
from fusionkit.errors import MisuseError
from fusionkit.match.repairing.region import enclose, form_of, region_like, region_of_nodes, regions_like
from fusionkit.match.repairing.region_choice import parse_lines, regions_of_lines, regions_of_names

NORM = "model.layers.0.input_layernorm"
A = torch.ops.aten


@pytest.fixture(scope="module")
def llama():
    return compiled("llama", plain=True).before[0]


def norm_nodes(graph):
    """The nodes between the first rsqrt's cast and the gain, without the casts at its edges."""
    rsqrt = next(node for node in graph.nodes if node.target is A.rsqrt.default)
    add = rsqrt.args[0]
    mean = add.args[0]
    scaled = next(iter(rsqrt.users))
    return [mean.args[0], mean, add, rsqrt, scaled]


def small_graph(build):
    """A graph of two placeholders a, b [2, 4], its nodes with fake values."""
    graph = torch.fx.Graph()
    with FakeTensorMode():
        for name in ("a", "b"):
            graph.placeholder(name).meta["val"] = torch.empty(2, 4)
        build(graph, *graph.nodes)
        for node in graph.nodes:
            if node.op == "call_function":
                values = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
                node.meta["val"] = node.target(*values)
    return graph


class TestChosenNodes:
    def test_the_casts_at_the_edges_belong_to_the_site(self, llama):
        """Five float32 nodes are chosen: the input is the bfloat16 one, the output too."""
        region = region_of_nodes(norm_nodes(llama))
        assert [region.value(node).dtype for node in (*region.inputs, *region.outputs)] == [
            torch.bfloat16
        ] * 2
        assert len(region.nodes) == 7
        assert region.leaks == ()

    def test_a_node_left_out_in_the_middle_is_named(self, llama):
        nodes = norm_nodes(llama)
        with pytest.raises(MisuseError, match=f"'{nodes[2].name}' lies between"):
            region_of_nodes([node for node in nodes if node is not nodes[2]])

    def test_unknown_names_and_placeholders_are_refused(self, llama):
        with pytest.raises(MisuseError, match="'nonesuch' is not in graph 0"):
            regions_of_names(llama, ["nonesuch"])
        with pytest.raises(MisuseError, match="is a placeholder"):
            region_of_nodes(llama.nodes[:1])
        with pytest.raises(MisuseError, match="no node was chosen"):
            region_of_nodes([])


class TestNames:
    def test_what_hangs_together_is_a_region_of_its_own(self, llama):
        rsqrts = [node.name for node in llama.nodes if node.target is A.rsqrt.default]
        found = regions_of_names(llama, rsqrts[:2])
        assert [region.outputs[0].name for region in found] == rsqrts[:2]

    def test_a_node_left_out_in_the_middle_is_named(self, llama):
        nodes = norm_nodes(llama)
        with pytest.raises(MisuseError, match=f"'{nodes[2].name}' lies between"):
            regions_of_names(llama, [node.name for node in nodes if node is not nodes[2]])

    def test_one_node_cannot_stand_for_two(self):
        def build(graph, a, b):
            made = [graph.call_function(A.neg.default, (x,)) for x in (a, a)]
            graph.output((*made, graph.call_function(A.neg.default, (b,))))

        graph = small_graph(build)
        one, two, alone = (node for node in graph.nodes if node.target is A.neg.default)
        region = enclose([one.args[0]], [one, two])
        assert region_like(region, one).outputs == (one, two)
        assert region_like(region, alone) is None


class TestEnclose:
    def test_says_which_input_is_missing_or_out_of_reach(self):
        def build(graph, a, b):
            graph.output(graph.call_function(A.neg.default, (graph.call_function(A.mul.Tensor, (a, b)),)))

        graph = small_graph(build)
        a, b, mul, neg, _ = graph.nodes
        assert enclose([a, b], [neg]).nodes == (mul, neg)
        assert enclose([mul], [neg]).nodes == (neg,)
        with pytest.raises(MisuseError, match="placeholder 'b' is reached"):
            enclose([a], [neg])
        with pytest.raises(MisuseError, match="input 'b' does not reach"):
            enclose([mul, b], [neg])


class TestForm:
    def test_every_norm_of_the_form_is_found_once(self, llama):
        region = region_of_nodes(norm_nodes(llama))
        found = regions_like(region, [llama.module.graph])
        assert len(found) == 5
        assert len({item.outputs[0] for item in found}) == 5
        assert {form_of(item) for item in found} == {form_of(region)}

    def test_numbers_may_differ_and_ops_may_not(self):
        def build(graph, a, b):
            one = graph.call_function(A.neg.default, (graph.call_function(A.add.Scalar, (a, 1.0)),))
            two = graph.call_function(A.neg.default, (graph.call_function(A.add.Scalar, (b, 2.0)),))
            other = graph.call_function(A.neg.default, (graph.call_function(A.add.Tensor, (a, b)),))
            same = graph.call_function(A.add.Tensor, (a, a))
            graph.output((one, two, other, same))

        graph = small_graph(build)
        a, b, *calls = [node for node in graph.nodes if node.op != "output"]
        one, two, other = (node for node in calls if node.target is A.neg.default)
        region = enclose([a], [one])
        assert region_like(region, two).inputs == (b,)
        assert region_like(region, other) is None
        twice, apart = enclose([a], [calls[-1]]), other.args[0]
        assert region_like(twice, apart) is None  # one node twice is not two nodes

    def test_a_further_output_is_found_beside_the_first(self):
        def build(graph, a, b):
            made = []
            for x in (a, b):
                parts = graph.call_function(A.split.Tensor, (x, 2, -1))
                made += [graph.call_function(operator.getitem, (parts, i)) for i in (0, 1)]
            graph.output(tuple(made))

        graph = small_graph(build)
        gets = [node for node in graph.nodes if node.target is operator.getitem]
        region = enclose([gets[0].args[0].args[0]], gets[:2])
        assert region_like(region, gets[2]).outputs == tuple(gets[2:])


class TestLines:
    def test_each_run_of_the_lines_is_a_region(self, llama):
        lines = [source_line(node) for node in norm_nodes(llama)]
        file = lines[0].rpartition(":")[0]
        numbers = [int(line.rpartition(":")[2]) for line in lines]
        found = regions_of_lines(llama, f"{file}:{min(numbers)}-{max(numbers)}")
        assert len(found) == 5
        assert len({form_of(region) for region in found}) == 1

    def test_lines_that_made_no_node_are_refused(self, llama):
        with pytest.raises(MisuseError, match=r"no node of graph 0 comes from nowhere.py:1-2"):
            regions_of_lines(llama, "nowhere.py:1-2")

    @pytest.mark.parametrize("text", ["a.py", "a.py:", "a.py:3-1", "a.py:x"])
    def test_another_form_is_refused(self, text):
        with pytest.raises(MisuseError, match="is no line range"):
            parse_lines(text)

    def test_one_line_is_a_range(self):
        assert parse_lines("b/a.py:7") == ("b/a.py", 7, 7)
