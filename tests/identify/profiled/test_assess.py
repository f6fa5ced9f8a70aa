"""Profiles joined to fused ops: made files with known sequences, and real ones where they are at hand."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.errors import MisuseError
from fusionkit.identify.ops import OP_NAMES
from fusionkit.identify.profiled.assess import assess_profile
from fusionkit.identify.profiled.bounds import ASSUMPTIONS, MAC, TRANSFER
from fusionkit.identify.profiled.chains import connected
from fusionkit.identify.profiled.grammar import CLASSES, GRAMMARS, expression
from fusionkit.profile.kernel_records import KernelRecord

REAL = Path(__file__).resolve().parents[4] / "shared" / "data" / "kernel_details"
HEAD = ("Step Id", "Stream ID", "Name", "Type", "Accelerator Core", "Start Time(us)", "Duration(us)", "Wait Time(us)",
        "Input Shapes", "Output Shapes")  # fmt: skip
NORM = ("Cast", "Pows", "ReduceMean", "Adds", "Rsqrt", "Mul", "Cast", "Mul")
HIDDEN = '"4,8,64"'


def kernels(types, *, core="AI_VECTOR_CORE", us=20.0, wait=1.0, stream="2", step="1", shape=HIDDEN, **more):
    return [
        {"Step Id": step, "Stream ID": stream, "Name": f"aclnn_{kind}", "Type": kind, "Accelerator Core": core,
         "Duration(us)": us, "Wait Time(us)": wait, "Input Shapes": shape, "Output Shapes": shape, **more}
        for kind in types
    ]  # fmt: skip


def profile(folder, rows):
    path = folder / "kernel_details.csv"
    columns = list(dict.fromkeys([*HEAD, *(name for row in rows for name in row)]))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows({**row, "Start Time(us)": 100.0 + 30 * number} for number, row in enumerate(rows))
    return path


SEQUENCES = [
    ("npu_rms_norm", NORM),
    ("npu_rms_norm", ("Square", "ReduceMeanD", "Adds", "Sqrt", "RealDiv", "Mul")),
    ("npu_add_rms_norm", ("Add", "Cast", "Pows", "ReduceMean", "Adds", "Rsqrt", "Mul", "Cast", "Mul")),
    ("npu_add_rms_norm", ("Add", "RmsNorm")),
    ("npu_swiglu", ("Swish", "Mul")),
    ("npu_swiglu", ("Swish", "MatMulV3", "Mul")),
    ("npu_geglu", ("GeluV2", "Mul")),
    ("npu_rotary_mul", ("Mul", "Slice", "Slice", "Neg", "ConcatD", "Mul", "Add")),
    ("npu_fusion_attention", ("BatchMatMulV2", "Muls", "Add", "SoftmaxV2", "Cast", "BatchMatMulV2")),
    ("npu_grouped_matmul", ("Index", "MatMul", "Swish", "MatMul", "Mul", "MatMul", "Mul", "InplaceIndexAdd")),
    ("npu_scaled_masked_softmax", ("Muls", "MaskedFill", "SoftmaxV2")),
    ("affinity_index_put", ("IndexPutV2",)),
    ("affinity_where", ("SelectV2",)),
    ("NpuFusedAdamW", ("Addcmul", "Sqrt", "Adds", "Addcdiv")),
]


@pytest.mark.parametrize(("op", "types"), SEQUENCES)
def test_each_op_finds_its_kernels(tmp_path, op, types):
    (found,) = assess_profile(profile(tmp_path, kernels(types))).known
    assert (found.op, found.kernels, found.count) == (op, types, 1)
    assert found.us == pytest.approx(20.0 * len(types))
    assert found.share == pytest.approx(1.0)


def test_every_op_with_a_sequence_is_tried_and_every_grammar_reads():
    assert {op for op, _ in SEQUENCES} == {row.op for row in GRAMMARS} <= set(OP_NAMES)
    assert all(expression(row.words).match("") is None for row in GRAMMARS)
    with pytest.raises(KeyError):
        expression("CAST NOTHING")


@pytest.mark.parametrize("kind", ["stream", "step", "communication", "shapes", "between"])
def test_kernels_that_are_no_one_modules_are_no_sequence(tmp_path, kind):
    first, second = NORM[:4], NORM[4:]
    rest = {
        "stream": kernels(second, stream="3"),
        "step": kernels(second, step="2"),
        "communication": kernels(["hcom_allReduce_"], core="COMMUNICATION") + kernels(second),
        "shapes": kernels(second, shape='"3,7"'),
        "between": kernels(["TopKV2"]) + kernels(second),
    }[kind]
    assert assess_profile(profile(tmp_path, kernels(first) + rest)).known == ()


def test_sequences_are_counted_and_a_kernel_belongs_to_one_only(tmp_path):
    rows = [row for _ in range(4) for row in (*kernels(NORM), *kernels(["Swish", "Mul"]))]
    found = {item.op: item for item in assess_profile(profile(tmp_path, rows)).known}
    assert {op: item.count for op, item in found.items()} == {"npu_rms_norm": 4, "npu_swiglu": 4}
    assert sum(item.share for item in found.values()) == pytest.approx(1.0)
    assert found["npu_rms_norm"].line == 2


def test_frequent_sequences_of_no_op_are_told_once_and_the_longest(tmp_path):
    rows = [
        row for _ in range(3) for row in (*kernels(["Exp", "Tile", "Sin"]), *kernels(["TopKV2"], shape='"9"'))
    ]
    found = assess_profile(profile(tmp_path, rows))
    assert found.known == ()
    assert [(item.op, item.kernels, item.count) for item in found.frequent] == [
        ("", ("Exp", "Tile", "Sin"), 3)
    ]


@pytest.mark.parametrize(
    ("rows", "bound", "ground", "saved"),
    [
        (kernels(["Swish", "Mul"], **{"aiv_mte2_ratio": 0.9}), "memory", "mte2_ratio 0.90 >= 0.5", 20.0),
        (kernels(["Swish", "Mul"], **{"aiv_mte2_ratio": 0.1}), "unknown", "mte2_ratio 0.10 < 0.5", None),
        (kernels(["Swish", "Mul"]), "memory", "vector cores, no PMU columns", 20.0),
        (kernels(["Swish", "Mul"], us=2.0), "launch", "mean kernel 2.0 us < 5", None),
        (kernels(["Swish", "Mul"], wait=50.0), "launch", "mean kernel 20.0 us, waits exceed durations", None),
        (kernels(["BatchMatMul"], core="AI_CORE", us=100.0, aic_mac_ratio=0.95) + kernels(["SoftmaxV2"], us=40.0)
         + kernels(["BatchMatMul"], core="AI_CORE", us=100.0, aic_mac_ratio=0.85), "compute", "aic_mac_ratio 0.90 >= 0.7", 20.0),
    ],
)  # fmt: skip
def test_the_bound_comes_from_the_columns_and_says_which(tmp_path, rows, bound, ground, saved):
    (found,) = assess_profile(profile(tmp_path, rows)).known
    assert (found.bound, found.ground) == (bound, ground)
    assert found.saved_us == pytest.approx(saved) if saved is not None else found.saved_us is None


def test_a_profile_of_a_cpu_gives_counts_and_no_times(tmp_path):
    found = assess_profile(profile(tmp_path, kernels(["Swish", "Mul"], core="CPU")))
    (item,) = found.known
    assert (item.count, item.us, item.share, item.saved_us) == (1, None, None, None)
    assert found.total_us is None
    assert "not NPU times" in found.note


def test_fused_kernels_that_run_already_are_counted(tmp_path):
    found = assess_profile(profile(tmp_path, kernels(["RmsNorm", "RotaryPositionEmbedding", "RmsNorm"])))
    assert found.fused == {"npu_rms_norm": 2, "npu_rotary_mul": 1}


def test_what_is_no_profile_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n", "utf-8")
    with pytest.raises(MisuseError, match="no kernel profile"):
        assess_profile(tmp_path / "x.csv")


def record(inputs, outputs):
    return KernelRecord("n", "T", "AI_CORE", 1.0, input_shapes=inputs, output_shapes=outputs)


def test_views_and_branches_keep_kernels_together():
    a, b = record(("2,3",), ("6",)), record(("3,2",), ("5",))
    assert connected([a, b])
    assert not connected([a, record(("7",), ("7",))])
    side, joint = record(("8",), ("6,1",)), record(("6", "6"), ("6",))
    assert connected([a, side, joint])
    assert connected([record((), ()), record((), ())])  # no shapes in the file


@given(st.lists(st.sampled_from(sorted({kind for kinds in CLASSES.values() for kind in kinds})), max_size=12))
def test_a_match_is_whole_kernels_in_order(types):
    text = "".join(f"{kind} " for kind in types)
    for row in GRAMMARS:
        for match in expression(row.words).finditer(text):
            words = match[0].split()
            assert match[0].endswith(" ")
            assert words == types[len(text[: match.start()].split()) :][: len(words)]


@pytest.mark.parametrize(
    ("name", "op", "kernels_", "count"),
    [
        ("msinsight_st_rank0_qwen3_train.csv", "npu_add_rms_norm", ("Add", "RmsNorm"), 54),
        ("mstt_advisor_2023_arith.csv", "npu_fusion_attention",
         ("BatchMatMul", "Mul", "ScaledMaskedSoftmax", "DropOutDoMask", "AsStrided", "BatchMatMul"), 2),
    ],
)  # fmt: skip
def test_real_profiles_show_what_is_in_them(name, op, kernels_, count):
    if not (REAL / name).is_file():
        pytest.skip(f"{name} is not at hand")
    known = assess_profile(REAL / name).known
    assert [(item.op, item.kernels, item.count) for item in known if item.op == op] == [(op, kernels_, count)]


def test_the_limits_rest_on_what_the_real_profile_shows():
    """What bounds.py says of a training step is what its file holds."""
    path = REAL / "msinsight_st_rank0_qwen3_train.csv"
    if not path.is_file():
        pytest.skip(f"{path.name} is not at hand")
    with path.open(newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.DictReader(stream))

    def column(name, kind):
        return sorted(float(row[name]) for row in rows if kind in row["Type"])

    mac = column("aic_mac_ratio", "MatMul")
    assert (len(mac), round(median(mac), 2), round(mac[-1], 2)) == (336, 0.79, 0.89)
    assert sum(value >= MAC.limit for value in mac) / len(mac) >= 0.8
    adds = [float(row["aiv_mte2_ratio"]) for row in rows if row["Type"] == "Add"]
    norms = [float(row["aiv_mte2_ratio"]) for row in rows if row["Type"] == "RmsNorm"]
    slices = [float(row["aiv_mte2_ratio"]) for row in rows if row["Type"] == "Slice"]
    assert [round(median(held), 2) for held in (adds, slices, norms)] == [0.78, 0.73, 0.21]
    assert all(f"{value:.2f}" in TRANSFER.ground for value in map(median, (adds, slices, norms)))
    assert all(row.ground and row.ground_zh and row.meaning and row.meaning_zh for row in ASSUMPTIONS)
