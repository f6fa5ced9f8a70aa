import pytest
import torch
from shared_models import compiled
from torch import nn

from fusionkit.capture.aot import aot_backend
from fusionkit.capture.sources import clean_module_path, module_path, source_line, source_text


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("L['self']", ""),
        ("L['self'].norm", "norm"),
        (
            "L['self'].__dict__['_modules']['transformer_blocks'].0.attn.norm_q",
            "transformer_blocks.0.attn.norm_q",
        ),
        ("L['self']._modules['blocks'][0].norm", "blocks.0.norm"),
        ("L['args'][0].model.layers.1.mlp", "model.layers.1.mlp"),
        ("G['mm'].blocks.0", "blocks.0"),
    ],
)
def test_module_path_is_spelled_as_in_named_modules(raw, path):
    assert clean_module_path(raw) == path


@pytest.mark.parametrize("name", ["flux", "llama"])
def test_every_recorded_module_is_a_module_of_the_model(name):
    known = dict(compiled(name).subject.model.named_modules())
    paths = {module_path(node) for node in compiled(name).before[0].nodes}
    assert len(paths) > 20
    assert paths <= set(known)


def test_source_is_the_models_line_not_torchs():
    node = next(n for n in compiled("flux").before[0].nodes if n.name == "rsqrt")
    assert module_path(node) == "transformer_blocks.0.attn.norm_q"
    assert source_line(node).startswith("diffusers/models/transformers/transformer_flux.py:")
    assert "rms_norm" in source_text(node)


def test_a_containers_index_is_not_taken_for_a_list_element():
    seen = []

    class Listener:
        def on_window(self, window, key, module):
            seen.extend(module_path(node) for node in module.graph.nodes)

        def on_call(self, key, inputs):
            pass

    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
    torch.compile(model, backend=aot_backend(Listener()))(torch.randn(2, 4))
    assert {"0", "1.0", "1.1"} <= set(seen)
