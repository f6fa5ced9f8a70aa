"""fusionkit numeric: every hit replayed, and the whole model in float32."""

from __future__ import annotations

import argparse

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.commands.progress import step
from fusionkit.commands.subject import add_subject_options, config_for, load, names_of
from fusionkit.verdict import Verdict, combine


def _configure(parser: argparse.ArgumentParser) -> None:
    add_subject_options(parser)
    parser.add_argument(
        "--patterns", metavar="A,B", help="default: those whose sites are counted for the subject"
    )
    parser.add_argument("--pattern-file", metavar="FILE.py", help="a pattern file, tried first")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _numeric(arguments: argparse.Namespace) -> int:
    from fusionkit.errors import MisuseError
    from fusionkit.match.hits import default_patterns
    from fusionkit.match.site_replay import replay_hits
    from fusionkit.match.whole_model import compare_model
    from fusionkit.npu.target import shows_values
    from fusionkit.passes.compiled import compile_subject
    from fusionkit.subjects.load import load_subject
    from fusionkit.subjects.site_counts import expected_counts

    if not shows_values(arguments.target):
        raise MisuseError(f"numeric: target {arguments.target} computes nothing; use --target cpu or npu")
    subject = load(arguments)
    if subject.fake is not None:
        raise MisuseError(
            "numeric: the full size is built without weights, from fake tensors; use --size tiny"
        )
    names = names_of(arguments.patterns) or default_patterns(expected_counts(subject))
    files = () if arguments.pattern_file is None else (arguments.pattern_file,)
    config = config_for(arguments, names, files)
    step("compiling, and replaying every hit")
    replays = replay_hits(compile_subject(subject, config, keep_inputs=True), seed=arguments.seed)
    step("comparing the whole model in float32")
    twin = load_subject(arguments.subject, size=arguments.size, dtype="float32", seed=arguments.seed)
    model = compare_model(compile_subject(twin, config))
    verdict = combine((replays.verdict, model.verdict))
    if arguments.json:
        whole = {"dtype": "float32", "verdict": str(model.verdict), "reason": model.reason}
        write_result(
            {
                "schema": "fusionkit.numeric/1",
                "verdict": str(verdict),
                "sites": replays.to_dict(),
                "model": whole,
            }
        )
    else:
        write_line(f"sites  {replays.verdict}  {replays.reason}")
        write_line(f"model  {model.verdict}  {model.reason}")
    return 0 if verdict is Verdict.PASS else 1


NUMERIC = Command(
    "numeric",
    "replay every hit on its own inputs, and compare the whole model in float32",
    "fusionkit numeric llama --patterns rms_norm",
    _configure,
    _numeric,
)
