"""Do two states of the kit give the same answers? Records those of one state, and compares two records.

    python tools/same_answers.py record OUT --kit CHECKOUT [--parts hits,explain,scan,runs]
    python tools/same_answers.py compare OLD NEW

`record` runs the checkout's own code: `hits --json` of every subject on cpu and npu-dry, the rows of
explain_misses.py, `scan --json` over transformers and diffusers, record.jsonl of three investigations. What OUT holds
already is kept, so that an interrupted recording goes on. `compare` leaves out times, and reads the old state's
sentences with REWORDED put in; it exits with 1 where anything else differs, or where nothing was compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS = ("flux-tiny", "wan-tiny", "llama-tiny")
TIMES = frozenset({"seconds", "created", "started", "ended"})
PROSE = frozenset({"reason", "fix", "message", "text", "benefit", "what", "line", "note", "notes"})

# Sentences that were reworded, old -> new; {} stands for what is filled in.
REWORDED: tuple[tuple[str, str], ...] = (
    (
        "{} carries no count of {}: that of {} is used",
        "{} has no site count of {}: that of {} is used",
    ),
    (
        "no count of {} on either side: only what was found is told",
        "no site count of {} on either side: only matched sites are listed",
    ),
    (
        "{} hits, but no independent count of sites to hold them against",
        "{} hits, but no independent site count to compare with",
    ),
    (
        "Measured on CPU: counts count, durations are no NPU time.",
        "Measured on CPU: kernel counts are valid, durations are not NPU times.",
    ),
    (
        "measured on CPU: counts count, durations are no NPU time",
        "measured on CPU: kernel counts are valid, durations are not NPU times",
    ),
    (
        "every file with a candidate has its hash of before",
        "the hashes of all files with a candidate are unchanged",
    ),
    (
        "every pattern file of the kit has its hash of before",
        "the hashes of the kit's pattern files are unchanged",
    ),
    (
        "rolled back: a replaced site computes something else",
        "rolled back: the numbers of a replaced site are wrong",
    ),
    (
        "'{}' still stands in {} files, first {}",
        "'{}' still occurs in {} files, first {}",
    ),
    (
        "'{}' stands in none of {} files",
        "'{}' occurs in none of {} files",
    ),
    (
        "no site was missed: {} of {} are accounted for",
        "no site was missed: all {} are hit, already fused or skipped",
    ),
    (
        "no place is known to be missed; the gates say what does not add up",
        "no missed site is known; the reasons of the gates name the disagreement between hits and sites",
    ),
    (
        "neither run copies anything",
        "neither run has a copy kernel",
    ),
    (
        "{} regimes pass",
        "{} sets of inputs pass",
    ),
    (
        "cannot be told",
        "unknown",
    ),
    (
        "cannot tell",
        "is inconclusive",
    ),
)


def say(line: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def jobs(kit: Path, parts: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Name of each answer, and the command that gives it."""
    python, cli = sys.executable, ["-m", "fusionkit"]
    names = subprocess.run(
        [python, "-c", "from fusionkit.subjects.table import SUBJECTS; print(*SUBJECTS)"],
        env=environment(kit), cwd=kit, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    if "hits" in parts:
        for target in ("cpu", "npu-dry"):
            for name in names:
                yield f"hits-{name}-{target}.json", [python, *cli, "hits", name, "--target", target, "--json"]
    if "scan" in parts:
        for package in ("transformers.models", "diffusers.models"):
            yield f"scan-{package}.json", [python, *cli, "scan", package, "--json"]
    if "explain" in parts:
        yield "explain.json", [python, "benchmarks/explain_misses.py", "--json", "{out}"]
    if "runs" in parts:
        for name in RUNS:
            yield f"run-{name}.jsonl", [python, *cli, "run", f"parameters/{name}.yaml", "--out", "{out}.run"]


def environment(kit: Path) -> dict[str, str]:
    """The environment in which the checkout's code is imported, by child processes as well."""
    return {**os.environ, "PYTHONPATH": str(kit), "HF_HUB_OFFLINE": "1"}


def record(out: Path, kit: Path, parts: list[str]) -> int:
    """Write every answer that OUT does not hold yet."""
    out.mkdir(parents=True, exist_ok=True)
    failures = 0
    for name, command in jobs(kit, parts):
        answer = out / name
        if answer.is_file():
            continue
        words = [word.replace("{out}", str(answer)) for word in command]
        done = subprocess.run(words, cwd=kit, env=environment(kit), capture_output=True, text=True)
        if name.startswith("run-"):
            record_file = Path(f"{answer}.run") / "record.jsonl"
            text = record_file.read_text("utf-8") if record_file.is_file() else ""
        else:
            text = answer.read_text("utf-8") if answer.is_file() else done.stdout
        if done.returncode not in (0, 1) or not text.strip():
            failures += 1
            say(f"{name}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
            continue
        answer.write_text(text, "utf-8")
        say(f"{name}: exit {done.returncode}")
    return 1 if failures else 0


def answer_of(path: Path) -> Any:
    """The parsed answer without times."""
    text = path.read_text("utf-8")
    values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
    if isinstance(values, list) and values and "case" in values[0]:
        values.sort(
            key=lambda row: str(row["case"])
        )  # the rows of explain_misses.py come as their processes end
    return without_times(values)


def without_times(value: Any) -> Any:
    """A JSON value without what differs between two runs of one state."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def differences(old: Any, new: Any, place: str = "", key: str = "") -> Iterator[str]:
    """One line for each place where two JSON values differ, reworded sentences aside."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            if name not in old or name not in new:
                yield f"{place}.{name}: only in the {'old' if name in old else 'new'} state"
            else:
                yield from differences(old[name], new[name], f"{place}.{name}", name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            yield from differences(left, right, f"{place}[{index}]", key)
    elif old != new and not (key in PROSE and isinstance(old, str) and reworded(old) == new):
        yield f"{place}: {old!r} -> {new!r}"


def reworded(sentence: str) -> str:
    """An old sentence in the new words."""
    for old, new in REWORDED:
        pattern = re.escape(old).replace(re.escape("{}"), "(.+?)")
        replacement = new.replace("{}", "\\g<%s>")
        for number in range(1, new.count("{}") + 1):
            replacement = replacement.replace("%s", str(number), 1)
        sentence = re.sub(pattern, replacement, sentence)
    return sentence


def compare(old: Path, new: Path) -> int:
    """Print what differs between two recordings."""
    names = sorted({path.name for folder in (old, new) for path in folder.glob("*.json*") if path.is_file()})
    compared = faults = 0
    for name in names:
        if not (old / name).is_file() or not (new / name).is_file():
            lines = [f"only in {old if (old / name).is_file() else new}"]
        else:
            compared += 1
            lines = list(differences(answer_of(old / name), answer_of(new / name)))
        faults += bool(lines)
        for line in lines[:20]:
            say(f"{name}{line if line.startswith(('.', '[')) else ': ' + line}")
    say(f"{compared} answers compared, {faults} differ")
    return 1 if faults or not compared else 0


def main() -> int:
    """Record or compare; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--kit", type=Path, required=True)
    recording.add_argument("--parts", default="hits,scan,explain,runs")
    comparing = commands.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "compare":
        return compare(chosen.old, chosen.new)
    return record(chosen.out.resolve(), chosen.kit.resolve(), chosen.parts.split(","))


if __name__ == "__main__":
    sys.exit(main())
