"""A pattern counted in real compiles: the kit's, torch's own, and foreign ones of every shape."""

import json
import threading

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends import common
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import aot_module_simplified

from fusionkit.cli import main
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.probe import probe
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict

use_target("cpu")


class TwoGelus(nn.Module):
    def forward(self, x):
        x = nn.functional.gelu(x, approximate="tanh")
        return nn.functional.gelu(torch.sigmoid(x), approximate="tanh")


class OutsideDynamo(TwoGelus):
    @torch.compiler.disable
    def forward(self, x):
        return super().forward(x)


def build(size, dtype):
    torch.manual_seed(0)
    return TwoGelus(), {"x": torch.randn(2, 4, 16, dtype=dtype)}


def subject():
    return Subject(*build("tiny", torch.float32))


def through_aot(module, inputs):
    return aot_autograd(fw_compiler=lambda graph, _: graph)(module, inputs)


def through_aot_directly(module, inputs):
    return aot_module_simplified(module, inputs, fw_compiler=lambda graph, _: boxed(graph))


def boxed(graph):
    return make_boxed_func(graph.forward)


def without_aot(module, inputs):
    return module.forward


class WithPatternPass:
    """In the shape of MindIE-SD's backend; `cached`: its pass is left out, as when a cache serves the graph."""

    cached = False
    applied = 0

    def __call__(self, module, inputs):
        return aot_autograd(fw_compiler=self.compile)(module, inputs)

    def compile(self, graph, inputs):
        if not self.cached:
            self.apply_pattern_match_passes(graph, inputs)
        return boxed(graph)

    @classmethod
    def apply_pattern_match_passes(cls, graph, inputs):
        cls.applied += 1


class WithInheritedPass(WithPatternPass):
    pass


BACKENDS = {
    "fusionkit": "before-freezing",
    "aot_eager": "aot",
    through_aot: "aot",
    through_aot_directly: "aot",
    WithPatternPass(): "pattern pass",
    WithInheritedPass(): "pattern pass",
}


@pytest.mark.parametrize(
    ("backend", "level"),
    BACKENDS.items(),
    ids=["fusionkit", "aot_eager", "aot", "aot directly", "pattern pass", "inherited pass"],
)
def test_both_sites_are_counted_and_nothing_is_rewritten(backend, level):
    call = common.AotAutograd.__call__
    own_pass = vars(WithPatternPass)["apply_pattern_match_passes"]
    report = probe(subject(), "gelu", backend=backend)
    assert report.hits() == {"gelu": 2}
    assert [graph.level for graph in report.graphs] == [level]
    assert report.verdict is Verdict.PASS
    assert report.reason == "gelu 2 hits in 1 graph(s)"
    assert common.AotAutograd.__call__ is call
    assert vars(WithPatternPass)["apply_pattern_match_passes"] is own_pass
    assert "apply_pattern_match_passes" not in vars(WithInheritedPass)


def test_the_graph_that_the_backend_compiles_is_as_it_would_be_without_the_probe():
    compiled = []

    def backend(module, inputs):
        return aot_autograd(fw_compiler=lambda graph, _: compiled.append(str(graph.graph)) or boxed(graph))(
            module, inputs
        )

    probe(subject(), "gelu", backend=backend)
    torch.compile(TwoGelus(), backend=backend)(*subject().kwargs.values())
    assert compiled[0].count("aten.gelu.default") == 2
    assert compiled[0] == compiled[1]


def test_a_window_behind_freezing_is_the_kits_own():
    report = probe(subject(), "gelu", window="after-freezing")
    assert [graph.level for graph in report.graphs] == ["after-freezing"]
    assert report.hits() == {"gelu": 2}
    with pytest.raises(MisuseError, match="window before-freezing only"):
        probe(subject(), "gelu", backend="aot_eager", window="after-freezing")


def test_a_pattern_that_is_not_there_fails():
    report = probe(subject(), "rms_norm", backend="aot_eager")
    assert report.verdict is Verdict.FAIL
    assert report.to_dict()["patterns"]["rms_norm"]["hits"] == 0


def test_the_pattern_is_traced_with_the_backends_own_decompositions():
    table = {torch.ops.aten.sigmoid.default: lambda x: 1 / (1 + torch.exp(-x))}
    levels = []

    def decomposing(module, inputs):
        return aot_autograd(
            fw_compiler=lambda graph, _: levels.append(str(graph.graph)) or boxed(graph), decompositions=table
        )(module, inputs)

    assert probe(subject(), "gelu", backend=decomposing).hits() == {"gelu": 2}
    assert "aten.sigmoid" not in levels[0]


def raises(error):
    raise error


@pytest.mark.parametrize(
    ("backend", "what"),
    [
        (lambda module, inputs: raises(ValueError("no lowering\nfor this")), "ValueError: no lowering at "),
        (lambda module, inputs: raises(SystemExit(3)), "SystemExit: 3 at "),
        (lambda module, inputs: raises(AssertionError()), "AssertionError at "),
        (lambda module: module, "TypeError: .* takes 1 positional argument but 2 were given"),
        (lambda module, inputs: None, "AssertionError: compiler_fn did not return callable"),
        (
            lambda module, inputs: lambda *_: raises(RuntimeError("device lost")),
            "RuntimeError: device lost at ",
        ),
        (aot_autograd(fw_compiler=lambda graph, _: raises(KeyError("x"))), "KeyError: 'x' at "),
    ],
    ids=["error", "exit", "no text", "arguments", "no callable", "when run", "inner compiler"],
)
def test_an_error_of_a_foreign_backend_is_one_line(backend, what):
    start = r"backend '.*': compiling and running the model with it raised "
    with pytest.raises(MisuseError, match=f"^{start}{what}") as caught:
        probe(subject(), "gelu", backend=backend)
    assert str(caught.value).count("\n") == 0
    if what.endswith(" at "):
        assert f"{__file__}:" in str(caught.value)
    assert "fusionkit/passes" not in str(caught.value)


def test_a_backend_without_aot_is_told_rather_than_counted_as_0():
    report = probe(subject(), "gelu", backend=without_aot)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.cause.type == "not_lowered"
    assert report.to_dict()["patterns"]["gelu"]["hits"] is None


class TestStaleCache:
    def served(self, *args, **kwargs):
        return lambda *inputs: TwoGelus()(*inputs)

    def test_a_graph_that_aot_takes_from_its_cache(self, monkeypatch):
        monkeypatch.setattr(common, "aot_module_simplified", self.served)
        report = probe(subject(), "gelu", backend="aot_eager")
        assert report.cause.type == "stale_compile_cache"
        assert report.cause.what.startswith("1 of 1 graphs went by")
        assert report.verdict is Verdict.INCONCLUSIVE
        assert report.reason.startswith("stale_compile_cache: ")

    def test_a_pattern_pass_that_is_not_reached(self):
        backend = WithPatternPass()
        backend.cached = True
        report = probe(subject(), "gelu", backend=backend)
        assert report.cause.type == "stale_compile_cache"
        assert report.to_dict()["patterns"]["gelu"] == {"hits": None, "sites": [], "refused": []}

    def test_a_model_that_is_not_compiled_at_all(self):
        disabled = Subject(OutsideDynamo(), subject().kwargs)
        assert probe(disabled, "gelu", backend="aot_eager").cause.type == "not_compiled"


class TestTwoProbes:
    def test_one_after_the_other_on_one_model_and_one_backend(self):
        one, backend = subject(), WithPatternPass()
        reports = [probe(one, name, backend=backend) for name in ("gelu", "rms_norm", "gelu")]
        assert [report.hits() for report in reports] == [{"gelu": 2}, {"rms_norm": 0}, {"gelu": 2}]

    def test_another_threads_compile_is_not_counted(self):
        calls = []

        def busy(module, inputs):
            def elsewhere():
                calls.append(
                    aot_autograd(fw_compiler=lambda graph, _: boxed(graph))(other, (torch.randn(3),))
                )

            other = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return through_aot(module, inputs)

        report = probe(subject(), "gelu", backend=busy)
        assert len(calls) == 1
        assert len(report.graphs) == 1

    def test_compilers_that_come_late_do_not_reach_a_probe_that_is_over(self):
        kept = []

        def keeping(module, inputs):
            made = aot_autograd(fw_compiler=lambda graph, _: boxed(graph))
            kept.append(made)
            return made(module, inputs)

        report = probe(subject(), "gelu", backend=keeping)
        torch.compile(TwoGelus(), backend=kept[0])(*subject().kwargs.values())
        assert len(report.graphs) == 1


@pytest.fixture
def backend_module(tmp_path, monkeypatch):
    (tmp_path / "my_backends.py").write_text(
        "from torch._dynamo.backends.common import aot_autograd\n"
        "from functorch.compile import make_boxed_func\n"
        "def run(module, inputs):\n"
        "    return aot_autograd(fw_compiler=lambda g, _: make_boxed_func(g.forward))(module, inputs)\n"
        "class Run:\n    __call__ = staticmethod(run)\n"
        "number = 3\n"
    )
    (tmp_path / "probe_models.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Model(nn.Module):\n"
        "    def forward(self, x):\n        return nn.functional.gelu(x, approximate='tanh')\n"
        "def build(size, dtype):\n    return Model(), {'x': torch.randn(2, 4, 16, dtype=dtype)}\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("backend_module")
class TestCommand:
    @pytest.mark.parametrize("backend", ["my_backends:run", "my_backends:Run"])
    def test_a_backend_by_its_place(self, capsys, backend):
        words = ["probe", "probe_models:build", "--pattern", "gelu", "--backend", backend, "--json"]
        assert main(words) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["schema"] == "fusionkit.probe/1"
        assert told["backend"] == backend
        assert told["patterns"]["gelu"]["hits"] == 1
        assert told["cause"] is None

    def test_no_hit_is_1(self, capsys):
        assert main(["probe", "probe_models:build", "--pattern", "rms_norm"]) == 1
        assert capsys.readouterr().out == "FAIL  rms_norm 0 hits in 1 graph(s)\n"

    @pytest.mark.parametrize(
        ("backend", "told"),
        [
            ("aot_eagr", "backend 'aot_eagr' is unknown; did you mean 'aot_eager'?"),
            ("no_such_backends:run", "importing no_such_backends raised ModuleNotFoundError"),
            ("my_backends:walk", "my_backends has no callable 'walk'"),
            ("my_backends:number", "my_backends has no callable 'number'"),
        ],
    )
    def test_no_backend_is_2(self, capsys, backend, told):
        assert main(["probe", "probe_models:build", "--pattern", "gelu", "--backend", backend]) == 2
        assert told in capsys.readouterr().err

    @pytest.mark.parametrize(
        "words", ["probe {} --pattern gelu", "numeric {}", "capture {} --out other.json"]
    )
    def test_a_capsule_is_2(self, capsys, tmp_path, words):
        (tmp_path / "x.json").write_text("{}")
        assert main(words.format(tmp_path / "x.json").split()) == 2
        assert "a capsule is not compiled" in capsys.readouterr().err
