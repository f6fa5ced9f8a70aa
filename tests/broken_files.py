"""Pattern files that are broken in one way each, and what is said of them."""

from __future__ import annotations

from pathlib import Path

_TEXT = """import os
import sys
import torch
import torch_npu
from fusionkit.patterns import PatternBase
{top}

class Trial(PatternBase):
    @staticmethod
    def name():
{name}

    @staticmethod
    def inputs():
{inputs}

    @staticmethod
    def pattern({arguments}):
{pattern}

    @staticmethod
    def replacement(x, w):
{replacement}

TrialPatternGroup = [Trial]
"""

_WHOLE = {
    "top": "",
    "name": 'return "Trial"',
    "inputs": 'return [torch.empty(2, 16, device="meta"), torch.empty(16, device="meta")]',
    "arguments": "x, w",
    "pattern": "return torch.sigmoid(x) * w",
    "replacement": "return torch.sigmoid(x) * w",
}
_LOOP = "while True: pass"

# What is broken -> (part of the file, its text, what is said of it; {path} stands for the file's).
BROKEN: dict[str, tuple[str, str, str]] = {
    "import error": ("top", "import no_such_module", "line 6: ModuleNotFoundError: No module named 'no_such_module'"),
    "relative import too high": ("top", "from .....x import y", "line 6: ImportError: attempted relative import"),
    "foreign name called at import": (
        "top",
        "from ...layers import fused_thing\nfused_thing(1)",
        "mindiesd.layers.fused_thing is called, but fusionkit does not provide it",
    ),
    "foreign name called in replacement": (
        "replacement",
        "from mindiesd.layers import fused_thing\nreturn fused_thing(x)",
        "No module named 'mindiesd'",
    ),
    "sys.exit at import": ("top", "sys.exit(0)", "line 6: SystemExit: 0"),
    "os._exit at import": ("top", "os._exit(0)", "its import ends the process (os._exit(0)) (at"),
    "os._exit in name": ("name", "os._exit(0)", "name() ends the process (os._exit(0))"),
    "sys.exit in pattern": ("pattern", "sys.exit(0)", "cannot be traced (SystemExit: 0) (at {path}:19)"),
    "loop at import": ("top", _LOOP, "its import does not end within 0.4 s (at"),
    "loop in name": ("name", _LOOP, "name() does not end within 0.4 s"),
    "loop in inputs": ("inputs", _LOOP, "inputs() does not end within 0.4 s"),
    "loop in pattern": ("pattern", _LOOP, "tracing it does not end within 0.4 s"),
    "loop of ops in pattern": ("pattern", "while True: x = x + 1", "tracing it does not end within 0.4 s"),
    "loop in replacement": ("replacement", _LOOP, "replacement of Trial does not end within 0.4 s"),
    "recursion at import": ("top", "def f(): return f()\nf()", "RecursionError: maximum recursion depth exceeded"),
    "recursion in pattern": ("pattern", "f = lambda: f()\nreturn f()", "depth exceeded) (at {path}:19)"),
    "mutated argument": (
        "pattern",
        "x.mul_(2)\nreturn x * w",
        "pattern() changes argument 'x' in place (aten.mul_.Tensor, line 19)",
    ),
    "mutated view of an argument": ("pattern", "x[0].zero_()\nreturn x * w", "pattern() changes argument 'x' in place"),
    "mutates and returns nothing": ("pattern", "x.mul_(w)", "pattern() changes argument 'x' in place"),
    "returns nothing": ("pattern", "x * w", "pattern() returns nothing, so it matches nothing"),
    "returns a number": ("pattern", "return 1", "pattern() returns int 1, so it matches nothing"),
    "too few arguments": ("arguments", "x", "pattern takes ['x'], replacement takes ['x', 'w']; make them equal"),
    "star arguments": ("arguments", "*tensors", "pattern() takes *tensors; name each argument"),
    "self": ("arguments", "self, x, w", "pattern() takes self; make it a @staticmethod"),
    "too few inputs": ("inputs", 'return [torch.empty(2, device="meta")]', "inputs() gives 1 tensors for 2 arguments"),
    "inputs of another kind": ("inputs", "return [1, 2]", "inputs() gives something else than a list of tensors"),
    "inputs of one tensor": ("inputs", "return torch.ones(2)", "inputs() gives something else than a list of tensors"),
    "name of another kind": ("name", "return 3", "name() gives 3; give a unique name"),
    "name of two lines": ("name", "return 'a\\nb'", "name() gives 'a\\nb'; a name is one line"),
    "name with a bell": ("name", "return 'a\\a'", "name() gives 'a\\x07'; a name is one line"),
    "MemoryError in pattern": ("pattern", "raise MemoryError", "cannot be traced (MemoryError) (at {path}:19)"),
    "MemoryError in replacement": ("replacement", "raise MemoryError", "does not run on its inputs(): MemoryError"),
    "MemoryError in inputs": ("inputs", "raise MemoryError", "inputs() raised MemoryError"),
    "MemoryError in name": ("name", "raise MemoryError", "name() raised MemoryError"),
    "EOFError in pattern": ("pattern", "raise EOFError('no line')", "cannot be traced (EOFError: no line) (at {path}:19)"),
    "error of the file's own": (
        "pattern",
        "class Own(Exception): pass\nraise Own('mine')",
        "cannot be traced (Own: mine) (at {path}:20)",
    ),
    "missing file in pattern": ("pattern", "open('/nowhere/x')", "cannot be traced (FileNotFoundError: "),
    "item in pattern": ("pattern", "return x * w.sum().item()", "_local_scalar_dense.default) (at {path}:19)"),
    "assert without text": ("pattern", "assert x is w", "cannot be traced (AssertionError) (at {path}:19)"),
    "shapes that do not broadcast": ("pattern", "return x * w[:7]", "cannot be traced (RuntimeError: "),
    "returns its argument": ("pattern", "return x", "pattern() gives back its argument 'x', so it matches nothing"),
    "returns its argument's own view": ("pattern", "return w.contiguous()", "gives back its argument 'w'"),
    "argument before the chain": ("pattern", "return x, x * w", "gives back its argument 'x'"),
    "NUL byte": ("top", "x = 1\n\0", "trial_pattern.py line 7: holds a NUL byte"),
}  # fmt: skip


def text_of(part: str, text: str) -> str:
    """The pattern file with one part exchanged."""
    parts = _WHOLE | {part: text}
    indented = ("name", "inputs", "pattern", "replacement")
    return _TEXT.format(
        **{
            key: "\n".join(" " * 8 + line for line in value.splitlines()) if key in indented else value
            for key, value in parts.items()
        }
    )


def told_of(what: str, path: Path) -> str:
    """What is said of the file `path` that is broken in this way."""
    return BROKEN[what][2].replace("{path}", str(path))


def write_broken(folder: Path, what: str) -> Path:
    """Write the file that is broken in this way into `folder`."""
    part, text, _ = BROKEN[what]
    path = folder / "trial_pattern.py"
    path.write_text(text_of(part, text))
    return path
