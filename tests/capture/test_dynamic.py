"""Marked dimensions: which stay symbolic, and which line and op made one a constant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from dry_processes import run_dry_script
from torch import nn

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.dynamic import DynamicDim, MarkedDim, find_dims, marked
from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject
from fusionkit.subjects.source_paths import short_path


class Doubles(nn.Module):
    def forward(self, x, more=None, *others):
        return x * 2 if more is None else x * 2 + more["a"][0]


class AddsOnes(nn.Module):
    def forward(self, x):
        longer = x + torch.ones(2, 5, 3)
        return longer * 2


class Asks(nn.Module):
    def forward(self, x):
        return x.relu() if x.shape[1] == 5 else x * 2


class Leaves(nn.Module):
    def forward(self, x, y):
        return y * 2


def subject(model: nn.Module, inputs: Any) -> Subject:
    return Subject(model.eval(), inputs, name="small")


def x(*size: int) -> torch.Tensor:
    return torch.zeros(size or (2, 5, 3))


def notes(model: nn.Module, inputs: Any, *dims: str) -> tuple[str, ...]:
    return capture_graphs(subject(model, inputs), dynamic=dims).notes


def line_of(model: nn.Module, text: str) -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    begin = lines.index(f"class {type(model).__name__}(nn.Module):")
    return next(number + 1 for number in range(begin, len(lines)) if text in lines[number])


class TestFind:
    def names(self, subject_: Subject, *wanted: str) -> list[tuple[str, int, int]]:
        return [(item.name, item.dim, item.size) for item in find_dims(subject_, wanted)]

    def test_one_input_by_name(self) -> None:
        both = subject(Leaves(), {"x": x(2, 5), "y": x(4, 6)})
        assert self.names(both, "y:1") == [("y", 1, 6)]
        assert self.names(both, "y:-1") == [("y", 1, 6)]
        assert self.names(subject(Leaves(), (x(2, 5), x(4, 6))), "y:0") == [("y", 0, 4)]

    def test_every_input_that_has_the_dimension(self) -> None:
        both = subject(Leaves(), {"x": x(2, 5), "y": x(4)})
        assert self.names(both, "1") == [("x", 1, 5)]
        assert self.names(both, "0") == [("x", 0, 2), ("y", 0, 4)]
        assert self.names(both, "-1", "y:0") == [("x", 1, 5), ("y", 0, 4)]

    def test_inside_of_nested_inputs(self) -> None:
        nested = subject(Doubles(), {"x": x(), "more": {"a": [x(2)], "flag": True}})
        assert self.names(nested, "0") == [("x", 0, 2), ("more['a'][0]", 0, 2)]
        assert self.names(nested, "more['a'][0]:0") == [("more['a'][0]", 0, 2)]

    def test_named_twice_is_one(self) -> None:
        assert self.names(subject(Doubles(), {"x": x()}), "1", "x:1", "x:-2") == [("x", 1, 5)]

    def test_nothing_wanted_is_nothing(self) -> None:
        assert find_dims(subject(Doubles(), {"x": x()}), ()) == []

    @pytest.mark.parametrize(
        ("wanted", "said"),
        [
            ("x:one", "--dynamic x:one: give INPUT:DIM or DIM, such as hidden_states:1"),
            ("x:", "--dynamic x:: give INPUT:DIM or DIM, such as hidden_states:1"),
            ("x:--1", "--dynamic x:--1: give INPUT:DIM or DIM, such as hidden_states:1"),
            ("x:²", "--dynamic x:²: give INPUT:DIM or DIM, such as hidden_states:1"),
            ("", "--dynamic : give INPUT:DIM or DIM, such as hidden_states:1"),
            ("z:0", "--dynamic z:0: no input tensor 'z'; there are x, y"),
            ("y:1", "--dynamic y:1: no input has a dimension 1"),
            ("y:-2", "--dynamic y:-2: no input has a dimension -2"),
            ("9", "--dynamic 9: no input has a dimension 9"),
        ],
    )
    def test_what_does_not_exist_is_refused(self, wanted: str, said: str) -> None:
        with pytest.raises(MisuseError) as caught:
            find_dims(subject(Leaves(), {"x": x(2, 5), "y": x(4)}), [wanted])
        assert str(caught.value) == said


class TestCapture:
    @pytest.mark.parametrize("inputs", [{"x": x()}, (x(),)])
    def test_a_dimension_that_nothing_looks_at_stays_symbolic(self, inputs: Any) -> None:
        (note,) = notes(Doubles(), inputs, "x:1")
        assert re.fullmatch(r"x dim 1 stays symbolic \(s\d+\)", note)

    def test_in_the_graph_it_is_a_symbol_too(self) -> None:
        capture = capture_graphs(subject(Doubles(), {"x": x()}), dynamic=["x:1"])
        (placeholder,) = [
            n
            for n in capture.graphs[0].nodes
            if n.op == "placeholder" and "val" in n.meta and isinstance(n.meta["val"], torch.Tensor)
        ]
        sizes = placeholder.meta["val"].shape
        assert [isinstance(size, torch.SymInt) for size in sizes] == [False, True, False]

    def test_the_specialising_line_and_its_ops_are_named(self) -> None:
        (note,) = notes(AddsOnes(), {"x": x()}, "x:1")
        place = f"{short_path(__file__)}:{line_of(AddsOnes(), 'torch.ones')}"
        assert note.startswith(f"x dim 1 is specialised to 5 at {place} by aten.")
        assert "aten.add.Tensor" in note
        assert "aten.mul" not in note
        assert note.endswith(": longer = x + torch.ones(2, 5, 3)")

    def test_a_question_in_python_is_a_line_without_ops(self) -> None:
        (note,) = notes(Asks(), {"x": x()}, "x:1")
        number = line_of(Asks(), "x.shape[1]")
        assert re.fullmatch(
            rf"x dim 1 is specialised to 5 at \S*test_dynamic\.py:{number}( by aten\.relu\.default)?: "
            + re.escape("return x.relu() if x.shape[1] == 5 else x * 2"),
            note,
        )

    def test_a_size_of_one_is_a_constant_of_torchs_own(self) -> None:
        text = "x dim 0 is specialised: torch takes a size of 1 as a constant"
        assert notes(Doubles(), {"x": x(1, 5)}, "x:0") == (text,)

    def test_an_input_that_is_not_used_has_no_line(self) -> None:
        text = "x dim 0 is specialised to 2; the compiler recorded no line for it"
        assert notes(Leaves(), {"x": x(2, 5), "y": x(4, 5)}, "x:0") == (text,)

    def test_each_marked_dimension_has_its_note(self) -> None:
        told = notes(AddsOnes(), {"x": x()}, "x:1", "x:2")
        assert [note.partition(" is ")[0] for note in told] == ["x dim 1", "x dim 2"]

    def test_without_marks_there_are_no_notes(self) -> None:
        assert notes(Doubles(), {"x": x()}) == ()


class TestMarks:
    def dim(self, tensor: torch.Tensor, dim: int) -> MarkedDim:
        return MarkedDim("x", dim, tensor.shape[dim], tensor, ("['x']",))

    def test_they_are_removed_afterwards_also_after_an_error(self) -> None:
        tensor = x()

        def fail() -> None:
            with marked([self.dim(tensor, 1), self.dim(tensor, 2)]):
                assert tensor._dynamo_weak_dynamic_indices == {1, 2}  # type: ignore[attr-defined]
                raise OSError("compile")

        with pytest.raises(OSError, match="compile"):
            fail()
        assert vars(tensor) == {}

    def test_those_of_the_user_stay(self) -> None:
        tensor = x()
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
        before = {name: repr(value) for name, value in vars(tensor).items()}
        with marked([self.dim(tensor, 1), self.dim(tensor, 2)]):
            assert tensor._dynamo_weak_dynamic_indices == {0, 1, 2}  # type: ignore[attr-defined]
        assert {name: repr(value) for name, value in vars(tensor).items()} == before

    def test_a_capture_leaves_the_inputs_as_they_were(self) -> None:
        tensor = x()
        notes(Doubles(), {"x": tensor}, "x:1")
        assert vars(tensor) == {}


def test_a_line_that_no_node_stands_on_is_told_as_it_is() -> None:
    dim = DynamicDim("x", 1, 5, None, "f(x)  # model.py:3 in forward (torch/x.py:1 in g)")
    assert dim.describe([]) == "x dim 1 is specialised to 5 at model.py:3: f(x)"
    assert DynamicDim("x", 1, 5, None, "f(x)").describe([]).endswith("at an unknown line: f(x)")


@pytest.fixture(scope="module")
def seen() -> Any:
    """What a process on npu-dry captured."""
    return run_dry_script(Path(__file__).with_name("dynamic_session.py"))


@pytest.mark.dry
class TestOnTheDryDevice:
    def test_attention_takes_the_sequence_length_as_a_constant(self, seen: Any) -> None:
        told = seen["attention"]
        assert told["breaks"] == []
        assert "npu.npu_fusion_attention_v3.default" in told["ops"]
        (note,) = told["notes"]
        source = Path(seen["file"])
        number = 1 + next(
            number
            for number, line in enumerate(source.read_text("utf-8").splitlines())
            if "scaled_dot_product_attention" in line
        )
        assert note.startswith(f"x dim 2 is specialised to 6 at {short_path(str(source))}:{number} by ")
        assert "npu.npu_fusion_attention_v3.default" in note
        assert note.endswith(": return F.scaled_dot_product_attention(x, x, x) + 1")

    def test_a_norm_alone_stays_symbolic(self, seen: Any) -> None:
        (note,) = seen["norm"]["notes"]
        assert re.fullmatch(r"x dim 1 stays symbolic \(s\d+\)", note)
        assert "aten.rsqrt.default" in seen["norm"]["ops"]
