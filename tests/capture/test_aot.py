import pytest
import torch
from shared_models import compiled, fresh_block, small_subject
from torch import nn

from fusionkit.capture.aot import aot_backend, decomposition_table
from fusionkit.capture.capturing import capture_graphs, compile_and_run
from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject


class Recorder:
    def __init__(self):
        self.windows = []
        self.calls = []

    def on_window(self, window, key, module):
        self.windows.append((window, key.index, key.kind, len(module.graph.nodes)))

    def on_call(self, key, inputs):
        self.calls.append((key.index, key.kind, len(inputs)))


def test_inference_passes_one_window_and_two_when_frozen():
    plain, frozen = Recorder(), Recorder()
    subject = small_subject()
    first = compile_and_run(subject, aot_backend(plain))
    second = compile_and_run(subject, aot_backend(frozen, freezing=True))
    assert [w[0] for w in plain.windows] == ["before-freezing"]
    assert [w[0] for w in frozen.windows] == ["before-freezing", "after-freezing"]
    assert torch.equal(first.outputs[0], second.outputs[0])
    assert torch.equal(first.outputs[0], subject.run()[0])
    assert len(plain.calls) == 1


def test_training_gives_forward_and_backward():
    recorder = Recorder()
    subject = small_subject(torch.float32)
    compile_and_run(subject, aot_backend(recorder), train=True)
    assert [w[2] for w in recorder.windows] == ["forward", "backward"]
    assert subject.model.gain.grad is not None


@pytest.mark.parametrize(("name", "nodes"), [("flux", 862), ("wan", 507), ("llama", 256)])
def test_node_counts_of_the_tiny_subjects(name, nodes):
    assert len(compiled(name).before[0].nodes) == nodes
    assert len(compiled(name).before) == 1
    assert compiled(name).outcome.breaks == ()
    assert compiled(name).outcome.recompiles == ()


def test_breaks_and_recompiles_are_told():
    class Breaks(nn.Module):
        def forward(self, x):
            y = x + 1
            torch._dynamo.graph_break()
            return y * 2

    outcome = compile_and_run(Subject(Breaks(), (torch.ones(2),), name="breaks"), aot_backend(Recorder()))
    assert len(outcome.breaks) == 1
    assert outcome.breaks[0].endswith("(x1)")

    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    outcome = compile_and_run(
        Subject(Counts(), (torch.ones(2),), name="counts"), aot_backend(Recorder()), calls=3
    )
    assert any("calls" in reason for reason in outcome.recompiles)


def test_a_model_that_fails_is_told_in_one_line():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no such luck\nsecond line")

    with pytest.raises(
        MisuseError,
        match=r"^subject bad: its plain forward fails with ValueError: no such luck at .*test_aot.py:\d+$",
    ):
        compile_and_run(Subject(Fails(), (torch.ones(2),), name="bad"), aot_backend(Recorder()))


def test_many_captures_of_one_class_never_fall_back_to_eager():
    block = fresh_block()
    x = torch.randn(2, 6, 16)
    for _ in range(12):  # past torch's default recompile limit of 8 for one code object
        recorder = Recorder()
        compile_and_run(Subject(block().eval(), (x,), name="block"), aot_backend(recorder))
        assert len(recorder.windows) == 1


def test_a_class_that_the_process_gave_up_on_is_told():
    """Past the limit torch runs a class eager for good, without a word: a capture must not pass that on."""
    block = fresh_block()
    x = torch.randn(2, 6, 16)
    for width in range(10):
        torch.compile(block(), backend="eager", dynamic=False)(torch.randn(2, 6 + width, 16))
    with pytest.raises(MisuseError, match="new process"):
        capture_graphs(Subject(block().eval(), (x,), name="block"))


def test_decomposition_tables():
    assert decomposition_table("none") == {}
    assert torch.ops.aten.native_layer_norm.default in decomposition_table("inductor")
