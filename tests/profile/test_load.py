from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_profiles import (
    DATA,
    HEADER_2023,
    HEADER_2025,
    HEADER_LEVEL0,
    HEADER_OP_SUMMARY,
    row,
    text_of,
    write,
)

from fusionkit.errors import MisuseError
from fusionkit.profile.families import op_type_of_name, stem
from fusionkit.profile.kernel_records import CPU_NOTE, Profile
from fusionkit.profile.profile_file import load_profile

ALL = {
    "2023": HEADER_2023,
    "2025": HEADER_2025,
    "level0": HEADER_LEVEL0,
    "op_summary": HEADER_OP_SUMMARY,
    "hybrid": ["Name" if name == "Op Name" else name for name in HEADER_OP_SUMMARY],
    "step_ID": ["Step ID" if name == "Step Id" else name for name in HEADER_2025],
    "no_step": [name for name in HEADER_2025 if name != "Step Id"],
}


def load(tmp_path: Path, rows: list[list[str]], **how: str) -> Profile:
    return load_profile(write(tmp_path / "kernel_details.csv", text_of(rows), **how))


@pytest.mark.parametrize("dialect", ALL)
def test_every_dialect_gives_the_same_record(tmp_path: Path, dialect: str) -> None:
    header = ALL[dialect]
    profile = load(tmp_path, [header, row(header)])
    (record,) = profile.records
    assert profile.problems == ()
    assert (record.name, record.type, record.core) == ("aclnnMul_MulAiCore_Mul", "Mul", "AI_VECTOR_CORE")
    assert (record.duration_us, record.wait_us) == (12.5, 0.25)
    assert record.start_us == 1764246877073569.640
    assert record.step == ("7" if any(name.startswith("Step") for name in header) else None)
    assert record.input_shapes == (("4,8", "8") if "Input Shapes" in header else ())
    assert record.output_dtypes == (("DT_BF16",) if "Input Shapes" in header else ())
    assert record.line == 2


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_newlines_and_byte_order_mark(tmp_path: Path, newline: str, encoding: str) -> None:
    text = text_of([HEADER_2023, row(HEADER_2023)], newline)
    profile = load_profile(write(tmp_path / "k.csv", text, encoding))
    assert profile.problems == ()
    assert profile.records[0].step == "7"


def test_tab_inside_quotes_and_empty_operands(tmp_path: Path) -> None:
    line = row(HEADER_2025, start="1764246877073569.640\t", shapes='";;;"')
    text = ",".join(HEADER_2025) + "\n" + ",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in line)
    record = load_profile(write(tmp_path / "k.csv", text)).records[0]
    assert record.start_us == 1764246877073569.640
    assert record.input_shapes == ("", "", "", "")


def test_communication_rows_are_kept(tmp_path: Path) -> None:
    changes = {"name": "hcom_allReduce__483_0", "type": "hcom_allReduce_", "core": "HCCL", "stream": "N/A"}
    record = load(tmp_path, [HEADER_2023, row(HEADER_2023, **changes, shapes="N/A")]).records[0]
    assert (record.stream, record.input_shapes, record.core) == (None, (), "HCCL")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aclnnInplaceCopy_TensorMoveAiCore_TensorMove", "TensorMove"),
        ("aclnnInplaceCopy_TensorMove", "TensorMove"),
        ("trans_Cast_19", "Cast"),
        ("Conv2D17", "Conv2D"),
        ("RealDiv132", "RealDiv"),
        ("LpNormReduceV2158", "LpNormReduceV2"),
        ("FastGeluV2", "FastGeluV2"),
        ("NonZero12_MemSet", "MemSet"),
        ("atomic_memset-1_18_186609_1", "MemSet"),
        ("RmsNorm", "RmsNorm"),
        ("aclnnFastGelu_FastGeluV2_FastGeluV2", "FastGeluV2"),
        ("hcom_allReduce__483_0_1", "hcom_allReduce_"),
        ("mm_swiglu_mxquant", "mm_swiglu_mxquant"),
    ],
)
@pytest.mark.parametrize("absent", ["0", "N/A", ""])
def test_without_a_type_the_name_decides(tmp_path: Path, name: str, kind: str, absent: str) -> None:
    profile = load(tmp_path, [HEADER_LEVEL0, row(HEADER_LEVEL0, name=name, type=absent)])
    assert profile.records[0].type == kind
    assert not profile.has_types


def test_records_are_in_time_order_to_the_last_digit(tmp_path: Path) -> None:
    starts = [f"1764246877073569.{digit}00" for digit in (3, 1, 2)]
    rows = [row(HEADER_2025, start=start, name=start[-3:]) for start in starts]
    profile = load(tmp_path, [HEADER_2025, *rows])
    assert [record.name for record in profile.records] == ["100", "200", "300"]
    assert [record.line for record in profile.records] == [3, 4, 2]


class TestRagged:
    def without(self, tmp_path: Path, header: list[str], missing: str) -> Profile:
        cells = row(header)
        at = header.index(missing)
        return load(tmp_path, [header, cells[:at] + cells[at + 1 :], row(header, start="1")])

    @pytest.mark.parametrize(
        "missing", ["Step Id", "Type", "OP State", "HF32 Eligible", "Input Shapes", "aic_mac_ratio"]
    )
    def test_a_shifted_row_is_put_in_place_and_listed(self, tmp_path: Path, missing: str) -> None:
        profile = self.without(tmp_path, HEADER_2025, missing)
        record = profile.records[1]
        assert record.line == 2
        assert (record.name, record.type, record.duration_us) == ("aclnnMul_MulAiCore_Mul", "Mul", 12.5)
        assert record.start_us == 1764246877073569.640
        assert record.step == (None if missing == "Step Id" else "7")
        (problem,) = profile.problems
        assert (problem.line, problem.left_out) == (2, False)
        assert "24 fields where the header has 25" in problem.what

    @pytest.mark.parametrize("missing", ["Duration(us)", "Wait Time(us)", "Block Dim"])
    def test_times_that_may_be_others_are_unknown_but_the_kernel_counts(
        self, tmp_path: Path, missing: str
    ) -> None:
        profile = self.without(tmp_path, HEADER_LEVEL0, missing)
        record = next(one for one in profile.records if one.line == 2)
        assert record.name == "aclnnMul_MulAiCore_Mul"
        assert record.duration_us in (0.0, 12.5)
        assert (record.duration_us == 12.5) == ("no usable duration" not in profile.problems[0].what)

    def test_a_wait_time_is_never_taken_for_a_duration(self, tmp_path: Path) -> None:
        profile = self.without(tmp_path, HEADER_LEVEL0, "Duration(us)")
        (record,) = [record for record in profile.records if record.line == 2]
        assert (record.duration_us, record.start_us) == (0.0, 1764246877073569.640)

    def test_a_row_whose_kernel_is_unclear_is_left_out_and_listed(self, tmp_path: Path) -> None:
        profile = self.without(tmp_path, HEADER_2025, "Accelerator Core")
        assert [record.line for record in profile.records] == [3]
        assert (profile.problems[0].line, profile.left_out) == (2, 1)
        assert "left out" in profile.problems[0].what
        assert profile.note == "1 rows could not be read"

    def test_a_word_that_may_be_type_or_state(self, tmp_path: Path) -> None:
        cells = row(HEADER_2025, state="fixed")
        cells.remove("Mul")
        assert load(tmp_path, [HEADER_2025, cells]).left_out == 1

    def test_an_unquoted_comma_in_the_shapes(self, tmp_path: Path) -> None:
        cells = row(HEADER_2025)
        at = HEADER_2025.index("Input Shapes")
        profile = load(tmp_path, [HEADER_2025, [*cells[:at], "4", "8", *cells[at + 1 :]]])
        assert profile.records[0].input_shapes == ("4,8",)
        assert len(profile.problems) == 1

    def test_extra_empty_fields_are_harmless(self, tmp_path: Path) -> None:
        profile = load(tmp_path, [HEADER_2025, [*row(HEADER_2025), "", ""]])
        assert profile.records[0].duration_us == 12.5
        assert len(profile.problems) == 1

    def test_a_cut_off_last_line(self, tmp_path: Path) -> None:
        text = text_of([HEADER_2025, row(HEADER_2025), row(HEADER_2025)])
        profile = load_profile(write(tmp_path / "k.csv", text[:-40]))
        assert len(profile.records) + profile.left_out == 2
        assert profile.problems[0].line == 3


class TestBadCells:
    @pytest.mark.parametrize("duration", ["N/A", "", "-3", "nan", "inf", "1e999", "soon"])
    def test_a_kernel_without_duration_counts_with_zero(self, tmp_path: Path, duration: str) -> None:
        profile = load(tmp_path, [HEADER_2025, row(HEADER_2025, duration=duration)])
        assert profile.records[0].duration_us == 0.0
        assert "duration" in profile.problems[0].what

    def test_an_unreadable_start_is_listed(self, tmp_path: Path) -> None:
        profile = load(tmp_path, [HEADER_2025, row(HEADER_2025, start="early")])
        assert profile.records[0].start_us is None
        assert "start time 'early' is no number" in profile.problems[0].what

    def test_a_second_header_is_no_kernel(self, tmp_path: Path) -> None:
        profile = load(tmp_path, [HEADER_2025, row(HEADER_2025), HEADER_2025, row(HEADER_2025)])
        assert len(profile.records) == 2
        assert profile.left_out == 0
        assert "header once more" in profile.problems[0].what

    def test_foreign_bytes(self, tmp_path: Path) -> None:
        file = tmp_path / "k.csv"
        file.write_bytes(
            text_of([HEADER_2025, row(HEADER_2025, name="x")]).encode().replace(b",x,", b",\xffx,")
        )
        profile = load_profile(file)
        assert len(profile.records) == 1
        assert "UTF-8" in profile.problems[0].what

    def test_a_header_alone_is_a_profile_without_kernels(self, tmp_path: Path) -> None:
        profile = load(tmp_path, [HEADER_2025])
        assert profile.records == ()
        assert [problem.line for problem in profile.problems] == [1]


class TestMisuse:
    def refuse(self, path: Path) -> str:
        with pytest.raises(MisuseError) as caught:
            load_profile(path)
        message = str(caught.value)
        assert "\n" not in message
        assert str(path) in message
        return message

    def test_no_such_file(self, tmp_path: Path) -> None:
        assert "no such file" in self.refuse(tmp_path / "kernel_details.csv")

    @pytest.mark.parametrize("text", ["", "\n\n"])
    def test_empty(self, tmp_path: Path, text: str) -> None:
        assert "empty" in self.refuse(write(tmp_path / "k.csv", text))

    def test_another_table_is_named_by_what_it_has(self, tmp_path: Path) -> None:
        message = self.refuse(
            write(tmp_path / "k.csv", "Device_id,OP Type,Core Type,Count,Total Time(us)\n0,Mul,AI,3,5\n")
        )
        assert "no column Name or Duration(us)" in message
        assert "OP Type, Core Type, Count" in message

    def test_a_database(self, tmp_path: Path) -> None:
        file = tmp_path / "ascend_pytorch_profiler_0.db"
        file.write_bytes(b"SQLite format 3\0" + b"\0" * 100)
        assert "SQLite" in self.refuse(file)

    def test_a_binary_file(self, tmp_path: Path) -> None:
        file = tmp_path / "k.csv"
        file.write_bytes(b"\x7fELF\0\0\0")
        assert "binary" in self.refuse(file)

    def test_a_folder_without_a_profile_says_what_is_there(self, tmp_path: Path) -> None:
        assert "found instead: nothing" in self.refuse(tmp_path)
        (tmp_path / "ASCEND_PROFILER_OUTPUT").mkdir()
        write(tmp_path / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", "[]")
        assert "ASCEND_PROFILER_OUTPUT/trace_view.json" in self.refuse(tmp_path)

    def test_a_folder_with_two_profiles(self, tmp_path: Path) -> None:
        for rank in ("rank0", "rank1"):
            folder = tmp_path / rank / "ASCEND_PROFILER_OUTPUT"
            folder.mkdir(parents=True)
            write(folder / "kernel_details.csv", text_of([HEADER_2025, row(HEADER_2025)]))
        assert "2 profiles" in self.refuse(tmp_path)


@pytest.mark.parametrize("below", ["", "ASCEND_PROFILER_OUTPUT", "host_123_ascend_pt/ASCEND_PROFILER_OUTPUT"])
def test_a_folder_is_searched(tmp_path: Path, below: str) -> None:
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "kernel_details.csv", text_of([HEADER_2025, row(HEADER_2025)]))
    assert len(load_profile(tmp_path).records) == 1


def test_to_dict(tmp_path: Path) -> None:
    rows = [row(HEADER_2025), row(HEADER_2025, duration="0.1"), row(HEADER_2025, type="Add", duration="0.2")]
    answer = load(tmp_path, [HEADER_2025, *rows, ["x"]]).to_dict()
    assert answer["rows"] == 3
    assert answer["total_us"] == 12.8
    assert answer["by_type"] == {"Add": {"count": 1, "us": 0.2}, "Mul": {"count": 2, "us": 12.6}}
    assert [set(problem) for problem in answer["problems"]] == [{"line", "what"}]
    assert answer["problems"][0]["line"] == 5


def test_a_cpu_profile_says_so(tmp_path: Path) -> None:
    profile = load(tmp_path, [HEADER_2025, row(HEADER_2025, core="CPU")])
    assert profile.source == "cpu"
    assert profile.to_dict()["note"] == CPU_NOTE
    assert load(tmp_path, [HEADER_2025, row(HEADER_2025, core="AI_CPU")]).source == "npu"


CELL = st.text(
    alphabet=st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=6
) | st.sampled_from(
    ['"', '""', "N/A", "0", "12.5", "1764246877073569.640\t", "Mul", '"4,8"', ";;;", "a\nb", "dynamic", "CPU"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(rows=st.lists(st.lists(CELL, max_size=30), max_size=8), dialect=st.sampled_from(sorted(ALL)))
def test_ragged_rows_never_crash_and_add_up(tmp_path: Path, rows: list[list[str]], dialect: str) -> None:
    header = ALL[dialect]
    text = text_of([header, *rows])
    profile = load_profile(write(tmp_path / "k.csv", text))
    physical = [cells for cells in csv.reader(io.StringIO(text, newline="")) if cells][1:]
    listed = {problem.line for problem in profile.problems}
    if all("\n" not in cell for cells in rows for cell in cells):
        assert len(profile.records) + profile.left_out == len(physical)
    assert {record.line for record in profile.records}.isdisjoint(
        problem.line for problem in profile.problems if problem.left_out
    )
    for line in (index + 2 for index, cells in enumerate(physical) if len(cells) != len(header)):
        if all("\n" not in cell for cells in rows for cell in cells) and len(physical) == len(rows):
            assert line in listed


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(seed=st.integers(0, 2**32), damage=st.integers(1, 6))
def test_damaged_files_never_crash(tmp_path: Path, seed: int, damage: int) -> None:
    draw = random.Random(seed)
    text = text_of([HEADER_2025, *[row(HEADER_2025, shapes='"4,8\n;8"') for _ in range(5)]])
    start = text.index("\n") + 1
    for _ in range(damage):
        at = draw.randrange(start, len(text))
        text = (
            text[:at] + draw.choice(['"', ",", "\n", "", "\x0b", "\ud7ff"]) + text[at + draw.randrange(3) :]
        )
    profile = load_profile(write(tmp_path / "k.csv", text))
    assert profile.records or profile.problems
    profile.to_dict()


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "rows", "has_types"),
        [
            ("mstt_resource_test_level0_nostep", 8, False),
            ("msinsight_level1_rank0", 191, True),
            ("msinsight_st_rank0_qwen3_train", 2463, True),
            ("msinsight_server_rank1", 22, True),
            ("mstt_advisor_2023_arith", 591, True),
        ],
    )
    def test_all_rows_are_read(self, name: str, rows: int, has_types: bool) -> None:
        profile = load_profile(real(name))
        assert len(profile.records) == rows
        assert profile.problems == ()
        assert profile.has_types is has_types
        assert profile.source == "npu"

    def test_counts_of_a_fused_training_step(self) -> None:
        types = load_profile(real("msinsight_st_rank0_qwen3_train")).by_type()
        fused = (
            "RmsNorm",
            "RotaryPositionEmbedding",
            "SwiGlu",
            "FlashAttentionScore",
            "FlashAttentionScoreGrad",
        )
        assert [types[kind][0] for kind in fused] == [112, 56, 28, 28, 28]

    def test_totals_equal_the_profilers_own_statistics(self) -> None:
        profile = load_profile(real("msinsight_st_rank0_qwen3_train"))
        types = profile.by_type()
        with real("msinsight_st_rank0_op_statistic").open(newline="") as stream:
            statistic = {line["OP Type"]: line for line in csv.DictReader(stream)}
        for kind, line in statistic.items():
            count, us = types.pop(kind)
            assert count == int(line["Count"])
            assert us == pytest.approx(float(line["Total Time(us)"]), abs=0.01)
        assert all(kind.startswith("hcom_") for kind in types)

    def test_types_from_names_are_the_types_of_the_file(self) -> None:
        for name in ("msinsight_st_rank0_qwen3_train", "msinsight_level1_rank0", "msinsight_server_rank1"):
            for record in load_profile(real(name)).records:
                assert op_type_of_name(record.name) == record.type

    def test_types_from_node_names_are_the_types_of_the_file_but_for_versions(self) -> None:
        for record in load_profile(real("mstt_advisor_2023_arith")).records:
            if "/" not in record.name:
                assert stem(op_type_of_name(record.name)) == stem(record.type)


def real(name: str) -> Path:
    file = DATA / f"{name}.csv"
    if not file.is_file():
        pytest.skip("the real profiles are not on this machine")
    return file
