import subprocess
import sys
import textwrap

import pytest
import torch
from shared_models import fresh_block

from fusionkit.capture.reading import read_capsule
from fusionkit.config import CompilationConfig, config_from_options, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.passes.backend import FusionBackend


def block():
    torch.manual_seed(0)
    return fresh_block()().bfloat16().eval(), torch.randn(2, 6, 16).bfloat16()


def test_by_name_from_a_users_own_script_with_the_core_alone(tmp_path):
    """No notebook, no transformers or diffusers, nothing registered by hand: the entry point is found."""
    script = f"""
        import sys
        sys.path.insert(0, {str(tmp_path.parent)!r})
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8, eps=1e-6), nn.GELU("tanh")).eval()
        x = torch.randn(2, 8)
        with torch.no_grad():
            compiled = torch.compile(model, backend="fusionkit", options={{"capsule": {str(tmp_path / "c.json")!r}}})
            torch.testing.assert_close(compiled(x), model(x))
        foreign = ("diffusers", "transformers", "papermill", "torch_npu")
        loaded = [n for n, module in sys.modules.items() if module and n.split(".")[0] in foreign]
        assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=tmp_path)
    names = {node.name for node in read_capsule(tmp_path / "c.json").graphs[0].nodes}
    assert "rsqrt" in names


def test_two_backends_with_different_configs_do_not_see_each_other():
    model, x = block()
    norms = FusionBackend(CompilationConfig(fusion_patterns=select_patterns(("rms_norm",))))
    gelus = FusionBackend(CompilationConfig(fusion_patterns=select_patterns(("gelu",))))
    with torch.no_grad():
        first, second = torch.compile(model, backend=norms), torch.compile(model, backend=gelus)
        first(x), second(x), first(x), second(x)
    assert norms.hits() == {"rms_norm": 2}
    assert gelus.hits() == {"gelu": 1}
    assert len(norms.graphs) == len(gelus.graphs) == 1


def test_options_dicts_are_counted_apart():
    model, x = block()
    one, other = {"patterns": ["rms_norm"]}, {"patterns": ["gelu"]}
    with torch.no_grad():
        torch.compile(model, backend="fusionkit", options=one)(x)
        torch.compile(model, backend="fusionkit", options=other)(x)
    assert one["_fusionkit_backend"].hits() == {"rms_norm": 2}
    assert other["_fusionkit_backend"].hits() == {"gelu": 1}


def test_training_through_the_backend_gives_the_gradients_of_eager():
    model, x = block()
    model = model.float().train()
    x = x.float()
    backend = FusionBackend(CompilationConfig(fusion_patterns=select_patterns(("rms_norm", "gelu"))))
    torch.compile(model, backend=backend)(x).sum().backward()
    compiled = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    for parameter, grad in zip(model.parameters(), compiled, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": ["gelu"]}, "did you mean 'patterns'"),
        ({"colour": 1}, "unknown option 'colour'"),
        ({"patterns": ["gellu"]}, "unknown pattern 'gellu'"),
        ({"window": "between"}, "unknown window 'between'"),
        ({"decompositions": "all"}, "unknown decomposition table 'all'"),
    ],
)
def test_bad_options_are_one_line(options, message):
    with pytest.raises(MisuseError, match=message):
        config_from_options(options)


def test_options_become_the_config():
    config = config_from_options(
        {"patterns": ["gelu"], "window": "after-freezing", "pattern_files": ["a.py"]}
    )
    assert config.freezes
    assert config.pattern_files == ("a.py",)
    assert [f for f in ("enable_gelu", "enable_rope") if getattr(config.fusion_patterns, f)] == [
        "enable_gelu"
    ]
