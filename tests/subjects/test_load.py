from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from fusionkit.errors import MisuseError
from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import load_subject

Write = Callable[[str, str], None]

FACTORY = """
    import torch
    from torch import nn
    from fusionkit.subjects.build import Subject

    def pair(size, dtype):
        return nn.Linear(2, 2 if size == "tiny" else 4).to(dtype), {"input": torch.ones(1, 2, dtype=dtype)}

    def named(size, dtype: str):
        assert dtype == "float32"
        return nn.Identity(), {"input": torch.ones(1)}

    def by_getattr(size, dtype):
        return nn.Identity(), {"input": torch.ones(1, dtype=getattr(torch, dtype))}

    def by_mapping(size, dtype):
        return nn.Identity(), {"input": torch.ones(1, dtype={"float32": torch.float32}[dtype])}

    def declared(size, dtype):
        return Subject(nn.Identity(), (torch.ones(1, dtype=dtype),), expected_sites={"rms_norm": 3})

    class Zoo:
        @staticmethod
        def build(size, dtype):
            return nn.Identity(), {"input": torch.ones(1)}

    def fails(size, dtype):
        raise ValueError("no such\\nsize")

    def fails_in_torch(size, dtype):
        return nn.Linear(-1, 2), {}

    def leaves(size, dtype):
        raise SystemExit(3)

    def one_argument(size):
        return None

    def number(size, dtype):
        return 3

    def wrong_model(size, dtype):
        return "model", {}

    def wrong_inputs(size, dtype):
        return nn.Identity(), torch.ones(1)

    def wrong_count(size, dtype):
        return Subject(nn.Identity(), (), expected_sites={"rope": -1})

    def wrong_sites(size, dtype):
        return Subject(nn.Identity(), (), expected_sites=[1])

    CONSTANT = 3
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module into a folder of its own, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)

    def write_module(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text), "utf-8")

    yield write_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def zoo(write: Write) -> None:
    write("zoo_of_subjects", FACTORY)


def refusal(name: object, **options: object) -> str:
    """The message of the MisuseError that loading raises; one line."""
    with pytest.raises(MisuseError) as caught:
        load_subject(name, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.usefixtures("zoo")
def test_a_factory_in_the_working_folder_is_loaded() -> None:
    path = list(sys.path)
    subject = load_subject("zoo_of_subjects:pair", size="full", dtype="float16", seed=5)
    assert subject.model.out_features == 4
    assert subject.model.weight.dtype is torch.float16
    assert (subject.name, subject.size, subject.dtype, subject.seed) == (
        "zoo_of_subjects:pair",
        "full",
        "float16",
        5,
    )
    assert subject.spec is None
    assert subject.expected_sites is None
    assert not subject.model.training
    assert load_subject("zoo_of_subjects:pair", train=True).model.training
    assert sys.path == path


@pytest.mark.usefixtures("zoo")
def test_a_factory_is_seeded_and_the_random_state_restored() -> None:
    state = torch.get_rng_state()
    first, again, other = (load_subject("zoo_of_subjects:pair", seed=seed).model.weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize("factory", ["named", "by_getattr", "by_mapping", "Zoo.build"])
def test_a_factory_may_want_the_name_of_the_dtype(factory: str) -> None:
    assert load_subject(f"zoo_of_subjects:{factory}", dtype="float32").run()[0].dtype is torch.float32


@pytest.mark.usefixtures("zoo")
def test_a_factory_may_declare_its_sites() -> None:
    subject = load_subject("zoo_of_subjects:declared")
    assert subject.expected_sites == {"rms_norm": 3}
    assert subject.args[0].dtype is torch.bfloat16


def test_a_callable_is_a_factory() -> None:
    def build(size: str, dtype: torch.dtype) -> Subject:
        return Subject(nn.Identity(), (torch.ones(2, dtype=dtype),))

    subject = load_subject(build)
    assert subject.name.endswith("test_a_callable_is_a_factory.<locals>.build")
    assert subject.run()[0].dtype is torch.bfloat16


def test_unknown_names_are_refused() -> None:
    message = refusal("flx")
    for part in ("'flx'", "did you mean 'flux'", "module:factory"):
        assert part in message
    message = refusal("zzzz")
    assert "did you mean" not in message
    assert "known: deepseek-v3, flux, flux2" in message
    assert "use one of: tiny, full" in refusal("flux", size="small")
    assert "use one of: bfloat16, float16" in refusal("flux", dtype="bf61")


@pytest.mark.parametrize(("alias", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")])
def test_a_dtype_goes_by_its_short_name(alias: str, dtype: str) -> None:
    def build(size: str, given: torch.dtype) -> Subject:
        return Subject(nn.Identity(), (torch.ones(1, dtype=given),))

    subject = load_subject(build, dtype=alias)
    assert (subject.dtype, subject.inputs[0].dtype) == (dtype, getattr(torch, dtype))
    assert "use one of: bfloat16" in refusal("flux", dtype="int8")


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("factory", "parts"),
    [
        ("zoo_of_subjects:absent", ["has no 'absent'"]),
        ("zoo_of_subjects:CONSTANT", ["is a int, not a factory"]),
        ("zoo_of_subjects:", ["not of the form module:factory"]),
        (":build", ["not of the form module:factory"]),
        ("zoo_of_nothing:build", ["no module zoo_of_nothing", "PYTHONPATH"]),
        ("zoo_of_nothing.sub:build", ["no module zoo_of_nothing"]),
        ("zoo_of_subjects:fails", ["factory raised ValueError: no such at ", "zoo_of_subjects.py:"]),
        ("zoo_of_subjects:fails_in_torch", ["factory raised RuntimeError", "zoo_of_subjects.py:"]),
        ("zoo_of_subjects:leaves", ["factory raised SystemExit: 3"]),
        ("zoo_of_subjects:one_argument", ["factory raised TypeError", "positional argument"]),
        ("zoo_of_subjects:number", ["returned a int", "(nn.Module, kwargs)"]),
        ("zoo_of_subjects:wrong_model", ["its model is a str"]),
        ("zoo_of_subjects:wrong_inputs", ["its inputs are a Tensor"]),
        ("zoo_of_subjects:wrong_count", ["expected_sites['rope'] is -1"]),
        ("zoo_of_subjects:wrong_sites", ["expected_sites is a list"]),
    ],
)
def test_what_is_wrong_with_a_factory_is_named(factory: str, parts: list[str]) -> None:
    message = refusal(factory)
    assert f"'{factory}'" in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def build(:\n", ["importing broken raised SyntaxError", "broken.py, line 1"]),
        ("import torch_of_nowhere\n", ["raised ModuleNotFoundError", "'torch_of_nowhere'", "broken.py:1"]),
        ("x = 1\nraise RuntimeError('no luck')\n", ["raised RuntimeError: no luck at", "broken.py:2"]),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(text: str, parts: list[str], write: Write) -> None:
    write("broken", text)
    message = refusal("broken:build")
    for part in parts:
        assert part in message


def test_a_module_that_lacks_a_model_library_says_what_to_install(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "diffusers", None)
    write("wants_diffusers", "import diffusers\n")
    assert "pip install 'fusionkit[models]'" in refusal("wants_diffusers:build")


def test_interrupts_pass() -> None:
    def build(size: str, dtype: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_subject(build)


def test_an_error_that_is_already_clear_passes_as_it_is() -> None:
    def build(size: str, dtype: str) -> None:
        raise MisuseError("weights.bin: not there; fetch it first")

    assert refusal(build) == "weights.bin: not there; fetch it first"


def test_a_factory_that_converts_its_module_works_under_a_fake_mode():
    """`.to(dtype)` in a factory: new parameters, shared ones stay shared, and nn.Module is as before."""
    from fusionkit.subjects.build import converting_by_assignment, new_fake_mode

    original = nn.Module._apply
    with new_fake_mode(), converting_by_assignment():
        tied = nn.Linear(4, 4)
        model = nn.Sequential(tied, nn.BatchNorm1d(4), nn.Linear(4, 4))
        model[2].weight = tied.weight
        assert model.to(torch.bfloat16) is model
    assert nn.Module._apply is original
    assert model[0].weight is model[2].weight
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}
    assert model[1].running_mean.dtype is torch.bfloat16
    assert model[1].num_batches_tracked.dtype is torch.int64
    assert all(isinstance(value, nn.Parameter) and value.requires_grad for value in model.parameters())
