"""Options of the commands on a subject, and the matching or capture of a subject or capsule."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionkit.commands.progress import step
from fusionkit.errors import MisuseError

if TYPE_CHECKING:
    from fusionkit.capture.graphs import Capture
    from fusionkit.config import CompilationConfig
    from fusionkit.match.matching import Matching
    from fusionkit.subjects.build import Subject
    from fusionkit.subjects.site_counts import ExpectedCount


# Defaults of a subject; a capsule has its own size, dtype and decompositions.
_BUILT_WITH = {"size": "tiny", "dtype": "bfloat16", "decompositions": "none"}


def add_subject_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the subject, its build and its compile."""
    parser.add_argument("subject", metavar="SUBJECT", help="a table name, module:factory, or a capsule file")
    parser.add_argument("--size", choices=("tiny", "full"), default=_BUILT_WITH["size"], help="default tiny")
    parser.add_argument("--target", default="cpu", help="cpu (default), npu-dry or npu")
    parser.add_argument("--dtype", default=_BUILT_WITH["dtype"], help="default bfloat16")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--window",
        choices=("before-freezing", "after-freezing"),
        default="before-freezing",
        help="default before-freezing",
    )
    parser.add_argument(
        "--decompositions",
        choices=("none", "inductor"),
        default=_BUILT_WITH["decompositions"],
        help="default none",
    )


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for training graphs and dynamic dimensions."""
    parser.add_argument("--train", action="store_true", help="training graphs: forward and backward")
    parser.add_argument(
        "--dynamic",
        type=_dynamic_dim,
        action="append",
        default=[],
        metavar="DIM",
        help="let a size vary: INPUT:DIM, or DIM for every input tensor that has it; may be repeated",
    )


def add_pattern_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the pattern that the command is about."""
    parser.add_argument(
        "--pattern", required=True, metavar="NAME|FILE.py", help="a pattern of the kit, or a pattern file"
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


def is_capsule(name: str) -> bool:
    """Whether SUBJECT names a capsule file rather than a model."""
    return name.endswith(".json")


def load(arguments: argparse.Namespace, *, train: bool = False) -> Subject:
    """Activate the target, then load the subject."""
    from fusionkit.npu.target import use_target
    from fusionkit.subjects.load import load_subject

    step(f"loading {arguments.subject}")
    use_target(arguments.target, tell=step)
    return load_subject(
        arguments.subject, size=arguments.size, dtype=arguments.dtype, seed=arguments.seed, train=train
    )


def config_for(
    arguments: argparse.Namespace, patterns: tuple[str, ...], files: tuple[str, ...] = ()
) -> CompilationConfig:
    """The compile config of the options."""
    from fusionkit.config import CompilationConfig, select_patterns

    return CompilationConfig(
        fusion_patterns=select_patterns(patterns),
        pattern_files=files,
        window=arguments.window,
        decompositions=arguments.decompositions,
    )


def make_matching(
    arguments: argparse.Namespace, patterns: tuple[str, ...] | None, files: tuple[str, ...] = ()
) -> tuple[Matching, dict[str, ExpectedCount]]:
    """Match in a capsule, or compile the subject; returns the matching and the independent site counts.

    `patterns` None: the patterns whose sites are counted for this subject.
    """
    from fusionkit.match.hits import default_patterns
    from fusionkit.match.matching import match_capture, matching_of
    from fusionkit.npu.target import use_target
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.subjects.site_counts import expected_counts

    if is_capsule(arguments.subject):
        from fusionkit.capture.reading import read_capsule

        use_target(arguments.target)
        capture = read_capsule(Path(arguments.subject))
        _refuse_build_options(arguments, capture)
        chosen = default_patterns(capture.counts) if patterns is None else patterns
        return match_capture(capture, config_for(arguments, chosen, files)), dict(capture.counts)
    subject = load(arguments, train=arguments.train)
    step("counting sites in eager mode")
    counts = expected_counts(subject)
    step("compiling and matching")
    chosen = default_patterns(counts) if patterns is None else patterns
    config = config_for(arguments, chosen, files)
    counted = any(count.sites is not None for count in counts.values())  # by a plain forward
    compiled = compile_subject(subject, config, has_run=counted, **graph_options(arguments))
    return matching_of(compiled), counts


def make_capture(arguments: argparse.Namespace, *, freezing: bool = False) -> Capture:
    """The graphs of a capsule, or of the subject compiled without patterns, with the independent site counts.

    `freezing`: include the window after freezing if the target has values to fold.
    """
    from fusionkit.capture.capturing import capture_graphs
    from fusionkit.capture.counted import with_counts
    from fusionkit.npu.target import use_target
    from fusionkit.subjects.site_counts import expected_counts

    if is_capsule(arguments.subject):
        from fusionkit.capture.reading import read_capsule

        use_target(arguments.target)
        capture = read_capsule(Path(arguments.subject))
        _refuse_build_options(arguments, capture)
        return capture
    subject = load(arguments, train=arguments.train)
    step("counting sites in eager mode")
    counts = expected_counts(subject)
    step("compiling")
    wanted = arguments.window == "after-freezing" or (freezing and not subject.fake and not arguments.train)
    capture = capture_graphs(
        subject, decompositions=arguments.decompositions, freezing=wanted, **graph_options(arguments)
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


def names_of(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None for None."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def or_dash(value: Any) -> str:
    """A field of a table line: "-" for None and the empty string."""
    return "-" if value in (None, "") else str(value)
