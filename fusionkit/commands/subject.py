"""Options of the commands on a subject, and its matching or capture."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionkit.commands.command import step
from fusionkit.errors import MisuseError

if TYPE_CHECKING:
    from fusionkit.capture.graphs import Capture
    from fusionkit.config import CompilationConfig
    from fusionkit.match.matching import Matching
    from fusionkit.subjects.build import Subject
    from fusionkit.subjects.site_counts import ExpectedCount


# Defaults of a subject; a capsule has its own size, dtype and decompositions.
_BUILT_WITH = {"size": "tiny", "dtype": "bfloat16", "decompositions": "none"}


def add_subject_options(
    parser: argparse.ArgumentParser, *, graphs: bool = True, pattern: bool = False
) -> None:
    """Add the options for the subject, its build and its compile.

    `graphs`: those for training graphs and dynamic dimensions as well; `pattern`: the pattern of the command.
    """
    parser.add_argument(
        "subject", metavar="SUBJECT", type=_subject, help="a table name, module:factory, or a capsule file"
    )
    parser.add_argument("--size", choices=("tiny", "full"), default=_BUILT_WITH["size"], help="default tiny")
    add_target_option(parser)
    parser.add_argument(
        "--dtype",
        type=_dtype,
        default=_BUILT_WITH["dtype"],
        help="default bfloat16; also bf16, fp16, ...",
    )
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    add_window_option(parser)
    parser.add_argument(
        "--decompositions",
        choices=("none", "inductor"),
        default=_BUILT_WITH["decompositions"],
        help="default none",
    )
    if graphs:
        parser.add_argument("--train", action="store_true", help="training graphs: forward and backward")
        parser.add_argument(
            "--dynamic",
            type=_dynamic_dim,
            action="append",
            default=[],
            metavar="DIM",
            help="let a size vary: INPUT:DIM, or DIM for every input tensor that has it; may be repeated",
        )
    if pattern:
        parser.add_argument(
            "--pattern",
            required=True,
            type=_pattern,
            metavar="NAME|FILE.py",
            help="a pattern of the kit, or a pattern file",
        )


def add_target_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the target."""
    parser.add_argument("--target", type=target_name, default="cpu", help="cpu (default), npu-dry or npu")


def add_window_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the window of the compile."""
    windows = ("before-freezing", "after-freezing")
    parser.add_argument("--window", choices=windows, default=windows[0], help=f"default {windows[0]}")


def add_patterns_options(parser: argparse.ArgumentParser) -> None:
    """Add the option for the patterns to match; its older spellings are not shown."""
    for names, text in (
        (("--pattern",), "patterns of the kit, and pattern files, which are tried first; may be repeated"),
        (("--patterns", "--pattern-file"), argparse.SUPPRESS),
    ):
        parser.add_argument(
            *names,
            dest="pattern",
            type=_patterns,
            action="extend",
            metavar="NAME|FILE.py,...",
            help=text
            if text == argparse.SUPPRESS
            else f"{text}; default: all with a site count, a match or a near miss",
        )


def graph_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The graph options as keyword arguments of compile_subject and capture_graphs."""
    options: dict[str, Any] = {"train": arguments.train}
    return options | ({"dynamic": tuple(arguments.dynamic)} if arguments.dynamic else {})


def _dynamic_dim(text: str) -> str:
    """Check the form of a dynamic dim; the capture checks that the input exists."""
    if not re.fullmatch(r"(?:[A-Za-z_][\w.]*:)?\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form INPUT:DIM or DIM, such as x:1 or 1")
    return text


def load(arguments: argparse.Namespace, *, train: bool = False) -> Subject:
    """Activate the target, then load the subject. Raises MisuseError for a capsule, which has no values."""
    from fusionkit.subjects.table import is_capsule

    if is_capsule(arguments.subject):
        raise MisuseError(
            f"{arguments.subject}: a capsule is not compiled or run; name the model, or give the capsule to"
            " `fusionkit hits` or `fusionkit explain`"
        )
    from fusionkit.npu.target import use_target
    from fusionkit.subjects.load import load_subject

    step(f"loading {arguments.subject}")
    use_target(arguments.target, tell=step)
    return load_subject(
        arguments.subject, size=arguments.size, dtype=arguments.dtype, seed=arguments.seed, train=train
    )


def config_for(arguments: argparse.Namespace, patterns: Sequence[str]) -> CompilationConfig:
    """The compile config of the options, with these patterns."""
    from fusionkit.config import config_for_patterns

    return config_for_patterns(patterns, window=arguments.window, decompositions=arguments.decompositions)


def open_source(arguments: argparse.Namespace) -> tuple[Subject | Capture, Mapping[str, ExpectedCount]]:
    """The subject or capsule of the options, with the independent site counts."""
    from fusionkit.capture.graphs import Capture
    from fusionkit.match.matching import open_subject

    build = {name: getattr(arguments, name) for name in ("size", "dtype", "seed", "train")}
    source, counts = open_subject(arguments.subject, target=arguments.target, tell=step, **build)
    if isinstance(source, Capture):
        _refuse_build_options(arguments, source)
    return source, counts


def make_matching(
    arguments: argparse.Namespace, patterns: Sequence[str] | None
) -> tuple[Matching, Mapping[str, ExpectedCount]]:
    """Match in a capsule, or compile the subject; returns the matching and the independent site counts.

    `patterns` None: every pattern of the kit.
    """
    from fusionkit.fusions import pattern_names
    from fusionkit.match.matching import match_subject
    from fusionkit.subjects.table import is_capsule

    source, counts = open_source(arguments)
    if not is_capsule(arguments.subject):
        step("compiling and matching")
    config = config_for(arguments, pattern_names() if patterns is None else patterns)
    counted = any(count.sites is not None for count in counts.values())  # by a plain forward
    return match_subject(source, config, has_run=counted, **graph_options(arguments)), counts


def make_capture(arguments: argparse.Namespace, *, freezing: bool = False) -> Capture:
    """The graphs of a capsule, or of the subject compiled without patterns, with the independent site counts.

    `freezing`: include the window after freezing if the target has values to fold.
    """
    from fusionkit.capture.graphs import Capture

    source, counts = open_source(arguments)
    if isinstance(source, Capture):
        return source
    return capture_subject(
        arguments, source, counts, freezing=freezing and not source.fake and not arguments.train
    )


def capture_subject(
    arguments: argparse.Namespace,
    subject: Subject,
    counts: Mapping[str, ExpectedCount],
    *,
    freezing: bool = False,
) -> Capture:
    """The graphs of a subject compiled without patterns; after freezing too if the options or `freezing` say so."""
    from fusionkit.capture.capturing import capture_graphs
    from fusionkit.capture.counted import with_counts

    step("compiling")
    capture = capture_graphs(
        subject,
        decompositions=arguments.decompositions,
        freezing=freezing or arguments.window == "after-freezing",
        **graph_options(arguments),
    )
    return with_counts(capture, subject.model, counts)


def _refuse_build_options(arguments: argparse.Namespace, capture: Capture) -> None:
    """Raise MisuseError for build options that contradict the capsule."""
    if arguments.train or arguments.dynamic:
        raise MisuseError(
            f"{arguments.subject}: a capsule's graphs are made already; give --train and --dynamic to"
            " `fusionkit capture`"
        )
    for option, default in _BUILT_WITH.items():
        given, made = getattr(arguments, option), getattr(capture, option)
        if given not in (default, made):
            raise MisuseError(
                f"{arguments.subject}: the capsule was made with --{option} {made}; give --{option} {given} to"
                " `fusionkit capture`"
            )


def target_name(text: str) -> str:
    """A target's name. Raises MisuseError for another one."""
    from fusionkit.config import check_target

    return check_target(text)


def _dtype(text: str) -> str:
    from fusionkit.subjects.spec import dtype_name

    return dtype_name(text)


def _subject(text: str) -> str:
    """A subject's name. Raises MisuseError for one that can be no subject; no model is imported or built."""
    from fusionkit.subjects.table import SUBJECTS, is_capsule, unknown_subject

    if ":" in text or text in SUBJECTS:
        return text
    if not is_capsule(text):
        raise MisuseError(unknown_subject(text))
    if not Path(text).is_file():
        raise MisuseError(f"{text}: no such capsule; write one with `fusionkit capture ... --out {text}`")
    return text


def _pattern(text: str) -> str:
    """A pattern's name, or its file. Raises MisuseError for an unknown name, and a file that is no Python."""
    from fusionkit.config import select_patterns
    from fusionkit.pattern_files.checking import check_pattern_file

    if text.endswith(".py"):
        check_pattern_file(Path(text))
    else:
        select_patterns((text,))
    return text


def _patterns(text: str) -> tuple[str, ...]:
    names = names_of(text) or ()
    if not names:
        raise MisuseError("--pattern names no pattern; give names such as rms_norm, or files")
    return tuple(_pattern(name) for name in names)


def names_of(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None for None."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def or_dash(value: Any) -> str:
    """A field of a table line: "-" for None and the empty string."""
    return "-" if value in (None, "") else str(value)
