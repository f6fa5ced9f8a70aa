from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.profile.collect import collect_cpu_profile
from fusionkit.profile.copies import analyze_copies
from fusionkit.profile.diff import diff_profiles
from fusionkit.profile.hit import check_kernel_hit
from fusionkit.profile.kernel_records import Profile
from fusionkit.profile.op_traits import cpu_op_type, op_role
from fusionkit.profile.profile_file import load_profile
from fusionkit.verdict import Verdict

Collect = Callable[..., Profile]


@pytest.fixture
def collect(tmp_path: Path) -> Collect:
    def run(fn: Callable[[], object], **how: object) -> Profile:
        with torch.no_grad():
            return collect_cpu_profile(fn, path=tmp_path / "kernel_details.csv", **({"warmup": 1} | how))  # type: ignore[arg-type]

    return run


@pytest.fixture(scope="module")
def fused_op() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    library = torch.library.Library("fusionkit_test_profile", "DEF")
    library.define("norm(Tensor x) -> Tensor")

    def norm(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    library.impl("norm", norm, "CPU")
    library.impl("norm", torch.empty_like, "Meta")
    yield torch.ops.fusionkit_test_profile.norm
    library._destroy()


def names(profile: Profile) -> list[str]:
    return [record.name for record in profile.records]


def test_a_module_gives_one_row_per_op_that_works(collect: Collect) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.LayerNorm(16)
    )
    model.eval()
    x = torch.randn(4, 8)
    profile = collect(lambda: model(x))
    assert [(record.name, record.type) for record in profile.records] == [
        ("aten::addmm", "MatMulV2"),
        ("aten::gelu", "Gelu"),
        ("aten::native_layer_norm", "LayerNormV4"),
    ]
    assert profile.source == "cpu"
    assert profile.problems == ()
    assert {record.core for record in profile.records} == {"CPU"}
    assert profile.records[0].input_shapes == ("16", "4,8", "8,16")
    assert profile.records[0].input_dtypes == ("FLOAT",) * 3


def test_views_allocations_and_no_ops_are_no_rows(collect: Collect) -> None:
    x = torch.randn(4, 6, 2)

    def views() -> object:
        y = x.view(24, 2).t().reshape(2, 4, 6).permute(1, 2, 0).transpose(0, 1)
        z = y[1:, :2].unsqueeze(0).squeeze(0).expand(5, 2, 2).as_strided((2, 2), (1, 2)).detach()
        parts = [
            *x.chunk(2),
            *x.split(1, dim=1),
            *x.unbind(-1),
            x.select(0, 0),
            x.narrow(1, 0, 2),
            x.flatten(1),
        ]
        torch.ops.aten._unsafe_view(x, [24, 2])
        return z, parts, torch.empty(3), torch.empty_like(x), x.to(torch.float32), x.contiguous(), x.float()

    assert names(collect(views)) == []


def test_only_the_steps_are_recorded_and_each_has_its_id(collect: Collect) -> None:
    x, calls = torch.randn(4), []
    profile = collect(lambda: calls.append(x * 2), warmup=3, steps=2)
    assert len(calls) == 5
    assert names(profile) == ["aten::mul", "aten::mul"]
    assert profile.steps == ("0", "1")


def test_what_the_cpu_does_inside_an_op_is_hidden(collect: Collect) -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    assert names(
        collect(lambda: (x * 3, x.sort(), torch.mean(x), x + torch.ones(8, dtype=torch.bfloat16)))
    ) == [
        "aten::mul",
        "aten::sort",
        "aten::mean",
        "aten::fill_",
        "aten::add",
    ]


def test_an_op_that_calls_others_shows_them(collect: Collect) -> None:
    x = torch.randn(4, 8)
    assert names(collect(lambda: torch.nn.functional.rms_norm(x, (8,), eps=1e-6))) == [
        "aten::pow",
        "aten::mean",
        "aten::add_",
        "aten::rsqrt",
        "aten::mul",
    ]
    assert names(collect(lambda: x.repeat_interleave(2, dim=1))) == ["aten::copy_"]
    assert names(collect(lambda: torch.stack([x, x]))) == ["aten::cat"]


@pytest.mark.parametrize(
    ("copy", "kind"),
    [
        (lambda x: x.to(torch.bfloat16), "Cast"),
        (lambda x: x.t().to(torch.bfloat16), "Cast"),
        (lambda x: x.clone(), "TensorMove"),
        (lambda x: x.t().contiguous(), "ViewCopy"),
        (lambda x: x.expand(3, 4, 8).contiguous(), "ViewCopy"),
        (lambda x: x.t()[:, :1].clone(memory_format=torch.contiguous_format), "TensorMove"),
        (lambda x: x[:, :1].clone(), "ViewCopy"),
    ],
)
def test_kinds_of_copies(collect: Collect, copy: Callable[[torch.Tensor], torch.Tensor], kind: str) -> None:
    x = torch.randn(4, 8)
    (record,) = collect(lambda: copy(x)).records
    assert (record.name, record.type) == ("aten::copy_", kind)
    assert record.output_shapes == record.input_shapes[:1]


def test_an_op_of_a_fused_namespace_is_one_row(
    collect: Collect, fused_op: Callable[..., torch.Tensor]
) -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    both = ("npu", "fusionkit", "fusionkit_test_profile")
    fused = collect(lambda: fused_op(x), fused_namespaces=both)
    assert names(fused) == ["fusionkit_test_profile::norm"]
    assert len(collect(lambda: fused_op(x)).records) > 5
    hit = check_kernel_hit(fused, "fusionkit_test_profile::norm", 1, collect(lambda: x * 2))
    assert hit.verdict is Verdict.PASS


def test_eager_against_compiled_tells_fused_from_unfused(
    tmp_path: Path, fused_op: Callable[..., torch.Tensor]
) -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    spaces = ("fusionkit_test_profile",)

    def unfused() -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * 2

    compiled = torch.compile(lambda: fused_op(x) * 2, backend="aot_eager")
    with torch.no_grad():
        baseline = collect_cpu_profile(unfused, path=tmp_path / "a.csv", fused_namespaces=spaces)
        candidate = collect_cpu_profile(compiled, path=tmp_path / "b.csv", fused_namespaces=spaces)
    diff = diff_profiles(baseline, candidate)
    assert diff.new == ("fusionkit_test_profile::norm",)
    assert {"aten::pow", "aten::mean", "aten::rsqrt", "aten::copy_"} <= set(diff.vanished)
    assert analyze_copies(candidate, baseline).verdict is Verdict.PASS


def test_the_file_has_the_columns_and_habits_of_the_real_one(collect: Collect, tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    profile = collect(lambda: torch.cat([x, x]).add_(1))
    text = (tmp_path / "kernel_details.csv").read_text("utf-8")
    header, first, *_ = csv.reader(text.splitlines())
    assert ",".join(header[:7]) == "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type"
    assert header[7:9] == ["OP State", "Accelerator Core"]
    assert {"Block Num", "Mix Block Num", "Input Shapes", "Output Formats"} <= set(header)
    assert first[header.index("Start Time(us)")].endswith("\t")
    assert first[header.index("Input Shapes")] == '"4,8;4,8"'
    assert first[header.index("Output Shapes")] == "N/A"
    assert profile == load_profile(tmp_path / "kernel_details.csv")


SILENT = """
import os, sys, torch
from fusionkit.profile.collect import collect_cpu_profile
collect_cpu_profile(lambda: torch.ones(3) + 1, path=sys.argv[1], warmup=0, steps=2)
assert os.environ.get("KINETO_LOG_LEVEL") == (sys.argv[2] or None)
"""


@pytest.mark.parametrize(("level", "quiet"), [("", True), ("0", False)])
def test_the_profiler_says_nothing_unless_it_is_asked_to(tmp_path: Path, level: str, quiet: bool) -> None:
    asked = {"KINETO_LOG_LEVEL": level} if level else {}
    ambient = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tmp_path / "p.csv"), level],
        capture_output=True,
        text=True,
        env=ambient | asked,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert (done.stderr == "") is quiet


def test_counts_are_the_same_every_time(collect: Collect) -> None:
    attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    first, second = (Counter(names(collect(lambda: attention(x, x, x)))) for _ in range(2))
    assert first == second
    assert first.total() > 3


def test_backward_runs_are_seen(tmp_path: Path) -> None:
    x = torch.randn(4, requires_grad=True)
    profile = collect_cpu_profile(lambda: (x * x).sum().backward(), path=tmp_path / "k.csv")
    assert names(profile).count("aten::mul") == 3  # forward, and once for each operand


class TestMisuse:
    def test_counts(self, tmp_path: Path) -> None:
        for how in ({"warmup": -1}, {"steps": 0}):
            with pytest.raises(MisuseError, match="warmup"):
                collect_cpu_profile(lambda: None, path=tmp_path / "k.csv", **how)

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(MisuseError, match="folder"):
            collect_cpu_profile(lambda: None, path=tmp_path)

    def test_an_unwritable_path(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(RunBrokenError):
            collect_cpu_profile(lambda: None, path=tmp_path / "file" / "k.csv")

    def test_what_the_function_raises_passes_through(self, tmp_path: Path) -> None:
        def broken() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            collect_cpu_profile(broken, path=tmp_path / "k.csv", warmup=0)
        assert not (tmp_path / "k.csv").exists()


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("aten::addmm", "kernel"),
        ("aten::add_", "kernel"),
        ("aten::sort", "kernel"),
        ("aten::copy_", "kernel"),
        ("npu::npu_rms_norm", "kernel"),
        ("fusionkit::layer_norm_scale_shift", "kernel"),
        ("aten::clone", "leaf"),
        ("aten::repeat_interleave", "leaf"),
        ("mylib::op", "leaf"),
        ("aten::no_such_op", "leaf"),
        ("aten::linear_no_such", "leaf"),
        ("aten::layer_norm", "transparent"),
        ("aten::view", "transparent"),
        ("aten::to", "transparent"),
        ("aten::dropout", "transparent"),
        ("aten::empty_strided", "transparent"),
        ("aten::_unsafe_view", "transparent"),
        ("ProfilerStep#0", "transparent"),
        ("Torch-Compiled Region: 0/0", "transparent"),
        ("autograd::engine::evaluate_function: MulBackward0", "transparent"),
        ("profiler::_record_function_enter_new", "transparent"),
    ],
)
def test_roles(name: str, role: str) -> None:
    assert op_role(name, ("npu", "fusionkit")) == role


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten::pow", "Pows"),
        ("aten::mean", "ReduceMean"),
        ("aten::silu_", "Swish"),
        ("aten::cat", "ConcatD"),
        ("npu::npu_rotary_mul", "RotaryPositionEmbedding"),
        ("npu::npu_fast_gelu", "FastGelu"),
        ("fusionkit::layer_norm_scale_shift", "AdaLayerNorm"),
        ("aten::softplus", "Softplus"),
        ("npu::npu_clipped_swiglu", "ClippedSwiglu"),
        ("aten::log_sigmoid_forward", "LogSigmoidForward"),
    ],
)
def test_types(op: str, kind: str) -> None:
    assert cpu_op_type(op) == kind
