"""Switches of the project: asked in the fused branch when their name and place allow it, and what is said of them."""

import pytest
from identify_examples import HEAD

from fusionkit.identify.reading import read_source
from fusionkit.identify.replacing import replace_site
from fusionkit.identify.scan_file import sites_of_file

NORM = """class Norm(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        {kept}

    def forward(self, x):
        {before}return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
"""
UNUSED = "no torch_npu call stands under it yet"
FIELD = "class ModelConfig:\n    hidden: int = 8\n    use_fused_rmsnorm: bool = False\n"


def replaced(folder, others=None, *, parameters="config", kept="self.config = config", before=""):
    """(condition, notes) of the norm in a package with these other files."""
    for name, code in (others or {}).items():
        (folder / name).write_text(code)
    path = folder / "model.py"
    path.write_text(HEAD + NORM.format(parameters=parameters, kept=kept, before=before))
    file = read_source(path)
    found = replace_site(file, next(site for site in sites_of_file(file) if site.op == "npu_rms_norm"))
    compile(found.new_text, "model.py", "exec")
    return found.condition, " ".join(found.notes)


@pytest.mark.parametrize(
    ("others", "given", "flag", "where"),
    [
        ({"config.py": FIELD}, {}, "self.config.use_fused_rmsnorm", "config.py:1"),
        ({"config.py": FIELD}, {"parameters": "config: ModelConfig"}, "self.config.use_fused_rmsnorm", "config.py:1"),
        ({"config.py": "class ModelConfig:\n    def __init__(self, *, use_npu=True):\n        self.use_npu = use_npu\n"}, {},
         "self.config.use_npu", "config.py:1"),
        ({}, {"parameters": "dim, use_fused_norm=False", "kept": "self.use_fused_norm = use_fused_norm"},
         "self.use_fused_norm", "model.py:"),
        ({"arguments.py": "def add(parser):\n    parser.add_argument('--use-fused-rmsnorm', action='store_true')\n"},
         {"kept": "pass\n\n\nargs = get_args()\n\n\nclass Same(Norm):\n    pass\n\n\nclass Norm(nn.Module):\n    weight = None"},
         "args.use_fused_rmsnorm", "arguments.py:2"),
    ],
)  # fmt: skip
def test_a_flag_that_nothing_stands_under_yet_is_asked_and_said_to_be_unused(
    tmp_path, others, given, flag, where
):
    condition, notes = replaced(tmp_path, others, **given)
    assert flag in condition.split(" and ")
    assert f"asks the existing switch {flag} ({where}" in notes
    assert UNUSED in notes


@pytest.mark.parametrize(
    ("others", "given"),
    [
        (
            {"config.py": FIELD.replace("use_fused_rmsnorm", "use_fused_attention")},
            {},
        ),  # speaks of another op
        ({"config.py": FIELD.replace("use_fused_rmsnorm", "use_norm")}, {}),  # of no fused code
        ({"config.py": FIELD.replace("bool = False", "int = 3")}, {}),  # no switch
        ({"config.py": FIELD}, {"parameters": "config: OtherConfig"}),  # of another configuration
        ({"config.py": FIELD}, {"parameters": "dim", "kept": "pass"}),  # out of reach
        ({}, {"parameters": "dim, use_fused_norm=False", "kept": "pass"}),  # not kept
    ],
)
def test_a_flag_of_something_else_or_out_of_reach_is_not_asked(tmp_path, others, given):
    condition, notes = replaced(tmp_path, others, **given)
    assert "torch_npu is not None" in condition
    assert "existing switch" not in notes


def test_a_flag_that_a_call_stands_under_is_not_called_unused(tmp_path):
    other = "def f(config, x):\n    if config.use_fused_rmsnorm:\n        return torch_npu.npu_rms_norm(x, x)[0]\n    return x\n"
    condition, notes = replaced(tmp_path, {"config.py": FIELD, "other.py": other})
    assert "self.config.use_fused_rmsnorm" in condition
    assert "(other.py:2)" in notes
    assert UNUSED not in notes
