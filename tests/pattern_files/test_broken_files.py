"""A broken pattern file is one clear line and exit code 2, within a time limit, and the process lives on."""

import contextlib
import logging
import os
import signal
import threading
import time

import pytest
import torch
from broken_files import BROKEN, text_of, told_of, write_broken
from torch import nn

from fusionkit.cli import main
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject, pattern_groups
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.pattern_files.time_limit import within_limits
from fusionkit.subjects.build import Subject

use_target("cpu")


@pytest.fixture(autouse=True)
def short_limit(monkeypatch):
    monkeypatch.setattr("fusionkit.pattern_files.time_limit.TIME_LIMIT_S", 0.4)


def register(path):
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    return match_pass_for(pattern_groups(config), "none")


@pytest.mark.parametrize("what", BROKEN)
def test_the_library_raises_one_line(tmp_path, what):
    exit_function = os._exit
    with pytest.raises(MisuseError) as caught:
        register(path := write_broken(tmp_path, what))
    assert told_of(what, path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os._exit is exit_function


def test_the_whole_file_is_registered(tmp_path):
    path = tmp_path / "trial_pattern.py"
    path.write_text(text_of("top", ""))
    assert register(path).entries("Trial") == 1


@pytest.mark.parametrize(
    "what",
    [
        "loop at import",
        "loop in replacement",
        "os._exit at import",
        "too few arguments",
        "MemoryError in pattern",
    ],
)
def test_the_command_ends_with_2_and_one_line(tmp_path, capsys, llama_capsule, what):
    path = write_broken(tmp_path, what)
    capsys.readouterr()
    assert main(["explain", str(llama_capsule), "--pattern", str(path)]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told_of(what, path) in told[-1]
    assert told[-1].startswith("fusionkit: ")


def test_a_chain_that_is_too_long_is_told_apart_from_endless_recursion(tmp_path, monkeypatch):
    monkeypatch.setattr("fusionkit.pattern_files.time_limit.TIME_LIMIT_S", 30.0)
    path = tmp_path / "trial_pattern.py"
    path.write_text(text_of("pattern", "for _ in range(300): x = -x\nreturn x * w"))
    with pytest.raises(MisuseError, match="Trial: is too long a chain for torch's matcher") as caught:
        register(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["pattern", "replacement"])
def test_torch_logs_nothing_of_an_op_that_fails(tmp_path, caplog, part):
    path = tmp_path / "trial_pattern.py"
    path.write_text(text_of(part, "return torch.sigmoid(x) * w[:7]"))
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(caplog.handler)
    try:
        with pytest.raises(MisuseError, match="RuntimeError: "):
            register(path)
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.records == []


@pytest.mark.parametrize("what", ["loop at import", "loop of ops in pattern"])
def test_another_thread_is_interrupted_as_well(tmp_path, what):
    path, raised = write_broken(tmp_path, what), []

    def run():
        try:
            register(path)
        except MisuseError as error:
            raised.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert told_of(what, path) in raised[0]


class Sigmoid(nn.Module):
    def forward(self, x, w):
        return torch.sigmoid(x) * w


def test_a_loop_at_the_sizes_of_the_model_alone_is_one_line(tmp_path):
    path = tmp_path / "trial_pattern.py"
    path.write_text(text_of("pattern", "while x.shape[0] > 2: pass\nreturn torch.sigmoid(x) * w"))
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    subject = Subject(Sigmoid(), {"x": torch.randn(3, 16), "w": torch.randn(16)})
    with pytest.raises(MisuseError, match=r"tracing it does not end within 0\.4 s"):
        compile_subject(subject, config)


@pytest.mark.parametrize("line", ["a, b = x.unbind(0)", "if x.shape[0] > 2: raise MemoryError"])
def test_an_error_at_the_sizes_of_the_model_alone_is_a_miss(tmp_path, line):
    path = tmp_path / "trial_pattern.py"
    path.write_text(text_of("pattern", f"{line}\nreturn torch.sigmoid(x) * w"))
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    subject = Subject(Sigmoid(), {"x": torch.randn(3, 16), "w": torch.randn(16)})
    assert compile_subject(subject, config).matches == ()


def swallow_once_and_sleep():
    with contextlib.suppress(BaseException):
        time.sleep(60)
    time.sleep(60)


def inner_then_sleep():
    with within_limits("inner", 60):
        pass
    time.sleep(60)


class TestWithinLimits:
    def test_code_that_swallows_the_interrupt_is_interrupted_again(self):
        with pytest.raises(MisuseError, match="it does not end within"), within_limits("it", 0.1):
            swallow_once_and_sleep()

    def test_handler_and_timer_of_before_go_on(self):
        rung = []
        handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with within_limits("it", 60):
                pass
            time.sleep(1)
            assert rung == [signal.SIGALRM]
        finally:
            signal.signal(signal.SIGALRM, handler)

    def test_an_outer_limit_holds_behind_an_inner_one(self):
        with pytest.raises(MisuseError, match="outer does not end"), within_limits("outer", 0.2):
            inner_then_sleep()

    def test_what_ends_in_time_leaves_nothing_behind(self):
        with within_limits("it", 0.05):
            pass
        time.sleep(0.1)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
