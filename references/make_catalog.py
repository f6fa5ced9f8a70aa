"""Run the examples of references/examples and write into the pages what they print.

    python references/make_catalog.py            write the pages
    python references/make_catalog.py --check    exit 1 naming each page that differs

A page has a block for each key of its table below, between `<!-- begin: KEY -->` and `<!-- end: KEY -->`. Everything runs on
target cpu, in a copy of the examples, within about half a minute.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import os
import runpy
import shlex
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

REFERENCES = Path(__file__).resolve().parent
EXAMPLES = REFERENCES / "examples"
FIXED = "fixed_pattern.py"
NORM, LOGGED, GATE = "small_models:norm", "small_models:logged_norm", "small_models:gate"


def explain(pattern: str, subject: str = NORM, options: str = "") -> str:
    """The command that asks about `pattern`."""
    return f"fusionkit explain {subject} --pattern {pattern} {options}".rstrip()


def repair(pattern: str, subject: str = NORM) -> str:
    """The command that repairs `pattern`."""
    return f"fusionkit repair {subject} --pattern {pattern} --out {FIXED}"


def of_file(kind: str, subject: str = NORM) -> tuple[str, ...]:
    """What is run for a pattern file named after its cause."""
    return explain(f"{kind}_pattern.py", subject), repair(f"{kind}_pattern.py", subject)


def of_capsule(kind: str) -> tuple[str, ...]:
    """What is run for a graph that edited_capsule.py changes."""
    made = f"{kind}.json"
    return f"python edited_capsule.py {kind} {made}", explain("right_pattern.py", made)


# Cause type -> the commands that show it, in the order of the catalog.
CATALOG: dict[str, tuple[str, ...]] = {
    "decomposition": (
        explain("decomposition_pattern.py"),
        explain("right_pattern.py", options="--pattern-decompositions inductor"),
        repair("decomposition_pattern.py"),
    ),
    "argument_order": of_file("argument_order"),
    "dtype_path": of_file("dtype_path"),
    "missing_node": of_file("missing_node"),
    "dim_literal": of_file("dim_literal"),
    "scalar_literal": of_file("scalar_literal"),
    "parameter_source": of_file("parameter_source"),
    "overload": of_file("overload"),
    "higher_order_form": (explain("higher_order_form_pattern.py", "small_models:halved"),),
    "kwargs_structure": of_file("kwargs_structure"),
    "dynamic_shape": of_file("dynamic_shape", GATE),
    "extra_user": of_file("extra_user", LOGGED),
    "shared_node": of_file("shared_node"),
    "cycle": (explain("cycle_pattern.py", "small_models:residual"),),
    "graph_break": (explain("graph_break_pattern.py", "small_models:broken_norm"),),
    "unsupported_dtype": (explain("unsupported_dtype_pattern.py", "small_models:rotation"),),
    "mutation_region": of_capsule("mutation_region"),
    "missing_meta": of_capsule("missing_meta"),
    "unused_argument": of_file("unused_argument"),
    "duplicate": of_file("duplicate"),
    "wrong_window": (
        explain("wrong_window_pattern.py", GATE, "--window after-freezing"),
        explain("wrong_window_pattern.py", GATE),
    ),
    "not_registered": ("python not_registered.py",),
    "retrace_error": of_file("retrace_error"),
    "consumed_earlier": (explain("consumed_earlier_pattern.py"),),
    "flag_off": ("python flag_off.py",),
    "root_not_indexed": of_file("root_not_indexed"),
    "extra_check": of_file("extra_check"),
    "several": of_file("several"),
    "stale_compile_cache": ("python stale_compile_cache.py",),
}
# The replacement is what matters as well, or alone.
REPLACEMENTS = {"duplicate", "extra_check", "unused_argument"}
TOOLS: dict[str, tuple[str, ...]] = {
    "lint": tuple(f"fusionkit lint {kind}_pattern.py" for kind in ("parameter_source", "scalar_literal")),
    "isolate": (f"fusionkit isolate {NORM} --pattern scalar_literal_pattern.py",),
    "probe": (
        f"fusionkit probe {NORM} --pattern right_pattern.py --backend aot_eager",
        f"fusionkit probe {NORM} --pattern right_pattern.py --backend eager",
    ),
    "repair": (repair("several_pattern.py"), f"cat {FIXED}"),
    "synthesize": (
        f"fusionkit synthesize {NORM} --lines small_models.py:26 --out my_norm_pattern.py",
        "cat my_norm_pattern.py",
    ),
}


class Runner:
    """Runs commands in a copy of the examples and keeps what each printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, command: str) -> str:
        """The command and what it printed, as a fenced block; a file is shown as Python."""
        words = shlex.split(command)
        if words[0] == "cat":
            return f"```python\n{(self._folder / words[1]).read_text('utf-8')}```"
        if FIXED in words:
            (self._folder / FIXED).unlink(missing_ok=True)
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            code = self._run(words)
        if code not in (0, 1):
            raise RuntimeError(f"{command}: exit code {code}: {errors.getvalue().strip()}")
        return f"```\n$ {command}\n{said.getvalue()}```"

    def _run(self, words: Sequence[str]) -> int:
        from fusionkit.cli import main

        if words[0] == "fusionkit":
            return main(words[1:])
        with _arguments(words[1:]):
            runpy.run_path(str(self._folder / words[1]), run_name="__main__")
        return 0


@contextlib.contextmanager
def _arguments(words: Sequence[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = list(words)
    try:
        yield
    finally:
        sys.argv = before


def section(kind: str, run: Runner) -> str:
    """Symptom, lines that matter, output of explain, what helps, output of repair."""
    file, words, code = example(kind)
    symptom, _, remedy = words.rpartition("\n\n")
    shown = [run(command) for command in CATALOG[kind]]
    at = next((n for n, command in enumerate(CATALOG[kind]) if " repair " in command), len(shown))
    link = f"[{file.name}](examples/{file.name}):"
    return "\n\n".join(
        [symptom, link, f"```python\n{code}\n```", *shown[:at], *_lint(file), remedy, *shown[at:]]
    )


def _lint(file: Path) -> list[str]:
    """What lint says of the file, if it says anything."""
    from fusionkit.passes.lint import lint_pattern_file

    if not file.stem.endswith("_pattern"):
        return []
    findings = lint_pattern_file(file).findings
    return [f"`fusionkit lint` needs no model to say `{item.rule}`: {item.what}." for item in findings]


def example(kind: str) -> tuple[Path, str, str]:
    """The file of a type's example, its text in words, and the lines that matter."""
    pattern, script = EXAMPLES / f"{kind}_pattern.py", EXAMPLES / f"{kind}.py"
    if pattern.is_file():
        text = pattern.read_text("utf-8")
        return pattern, ast.get_docstring(ast.parse(text)) or "", _pattern_lines(text, kind in REPLACEMENTS)
    if script.is_file():
        text = script.read_text("utf-8")
        code = text.partition("from __future__ import annotations\n")[2].strip()
        return script, ast.get_docstring(ast.parse(text)) or "", code
    file = EXAMPLES / "edited_capsule.py"
    text = file.read_text("utf-8")
    (function,) = (n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == kind)
    return file, ast.get_docstring(function) or "", _lines(text, function.body[1], function.body[-1])


def _pattern_lines(text: str, with_replacement: bool) -> str:
    """The functions `pattern`, and tensors that stand outside of them."""
    tree = ast.parse(text)
    names = ("pattern", "replacement") if with_replacement else ("pattern",)
    tensors = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign) and not ast.unparse(node.targets[0]).endswith(("aten", "Group"))
    ]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in names]
    return "\n\n\n".join(_lines(text, node, node) for node in [*tensors, *functions])


def _lines(text: str, first: ast.stmt, last: ast.stmt) -> str:
    kept = text.splitlines()[first.lineno - 1 : last.end_lineno]
    return textwrap.dedent("\n".join(line.partition("  # type: ")[0] for line in kept))


def filled(text: str, blocks: dict[str, str]) -> str:
    """A page's text with its blocks as they should be. Raises ValueError for a block that the page lacks."""
    for key, body in blocks.items():
        begin, end = f"<!-- begin: {key} -->\n", f"<!-- end: {key} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"block {key} does not stand once in its page")
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{body}\n\n{end}{after}"
    return text


def pages() -> dict[str, str]:
    """Page -> its text as it should be."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve() / "examples"
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
        run = Runner(folder)
        with contextlib.chdir(folder):
            catalog = {kind: section(kind, run) for kind in CATALOG}
            tools = {
                key: "\n\n".join(run(command) for command in commands) for key, commands in TOOLS.items()
            }
    blocks = {"mismatch-catalog.md": catalog, "pattern-tools.md": tools}
    return {page: filled((REFERENCES / page).read_text("utf-8"), blocks[page]) for page in blocks}


def main() -> int:
    """Write the pages, or check them."""
    changed = 0
    for page, text in pages().items():
        path = REFERENCES / page
        before = path.read_text("utf-8")
        if text == before:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{page}: not what the examples print; run: python references/make_catalog.py")
            print("\n".join(difflib.unified_diff(before.splitlines(), text.splitlines(), lineterm="", n=0)))
            changed = 1
        else:
            path.write_text(text, "utf-8")
    return changed


if __name__ == "__main__":
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    sys.exit(main())
