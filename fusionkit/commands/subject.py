"""What the commands over a subject share: their options, and how a subject or capsule becomes a matching."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionkit.commands.progress import step

if TYPE_CHECKING:
    from fusionkit.config import CompilationConfig
    from fusionkit.match.matching import Matching
    from fusionkit.subjects.build import Subject
    from fusionkit.subjects.sites import ExpectedCount


def add_subject_options(parser: argparse.ArgumentParser) -> None:
    """The subject and how it is built and compiled."""
    parser.add_argument("subject", metavar="SUBJECT", help="a table name, module:factory, or a capsule file")
    parser.add_argument("--size", choices=("tiny", "full"), default="tiny", help="default tiny")
    parser.add_argument("--target", default="cpu", help="cpu (default), npu-dry or npu")
    parser.add_argument("--dtype", default="bfloat16", help="default bfloat16")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--window",
        choices=("before-freezing", "after-freezing"),
        default="before-freezing",
        help="default before-freezing",
    )
    parser.add_argument("--decompositions", choices=("none", "inductor"), default="none", help="default none")


def is_capsule(name: str) -> bool:
    """Whether SUBJECT names a capsule file rather than a model."""
    return name.endswith(".json")


def load(arguments: argparse.Namespace, *, train: bool = False) -> Subject:
    """Choose the target, then load the subject that the options describe."""
    from fusionkit.npu.target import use_target
    from fusionkit.subjects.load import load_subject

    step(f"loading {arguments.subject}")
    use_target(arguments.target)
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
    """Match in a capsule, or compile the subject; with the independent count where there is a model.

    `patterns` None: those whose sites are counted for this subject.
    """
    from fusionkit.config import pattern_names
    from fusionkit.match.hits import default_patterns
    from fusionkit.match.matching import match_capture, matching_of
    from fusionkit.npu.target import use_target
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.subjects.sites import expected_counts

    if is_capsule(arguments.subject):
        from fusionkit.capture.reading import read_capsule

        use_target("cpu")
        capture = read_capsule(Path(arguments.subject))
        chosen = pattern_names() if patterns is None else patterns
        return match_capture(capture, config_for(arguments, chosen, files)), {}
    subject = load(arguments)
    step("counting sites in eager mode")
    counts = expected_counts(subject)
    step("compiling and matching")
    chosen = default_patterns(counts) if patterns is None else patterns
    return matching_of(compile_subject(subject, config_for(arguments, chosen, files))), counts


def names_of(text: str | None) -> tuple[str, ...] | None:
    """`a,b` as names; None where nothing was said."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def told(value: Any) -> str:
    """A field of a table line: "-" for None and the empty string."""
    return "-" if value in (None, "") else str(value)
