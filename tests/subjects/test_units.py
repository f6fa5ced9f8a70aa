"""Units: the smallest module that holds a site's math, with the inputs the model gives it."""

import pytest
import torch
from shared_models import counts_of, table_subject

from fusionkit.subjects.units import extract_units

WANTED = {
    ("flux", "rms_norm"): {"transformer_blocks.0.attn.norm_q"},
    ("flux", "rope"): {"transformer_blocks.0.attn", "single_transformer_blocks.0.attn"},
    ("flux", "ada_layer_norm"): {
        "transformer_blocks.0.norm1",
        "transformer_blocks.0",
        "single_transformer_blocks.0.norm",
        "norm_out",
    },
    ("llama", "rms_norm"): {"model.layers.0.input_layernorm"},
    ("llama", "swiglu"): {"model.layers.0.mlp"},
}


@pytest.mark.parametrize(("name", "primitive"), WANTED, ids=lambda x: x)
def test_units_are_where_the_math_is_written(name, primitive):
    units = extract_units(table_subject(name), counts_of(name)[primitive].sites)
    paths = {unit.path for unit in units}
    assert paths <= {*WANTED[(name, primitive)], *(p for p in paths if p.startswith("transformer_blocks.0"))}
    assert WANTED[(name, primitive)] & paths
    assert len(paths) == len(units)


def test_a_unit_gives_what_the_model_computed_there():
    subject = table_subject("llama")
    unit = extract_units(subject, counts_of("llama")["swiglu"].sites)[0]
    seen = []
    module = dict(subject.model.named_modules())[unit.path]
    handle = module.register_forward_hook(lambda _m, _a, out: seen.append(out.clone()))
    subject.run()
    handle.remove()
    assert torch.equal(unit.subject.run()[0], seen[0])


def test_no_hook_is_left_behind():
    subject = table_subject("llama")
    extract_units(subject, counts_of("llama")["rms_norm"].sites)
    assert not any(module._forward_pre_hooks for module in subject.model.modules())
