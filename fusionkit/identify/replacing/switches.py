"""What a fused branch asks first: a switch that the project already has, else whether torch_npu is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fusionkit.identify.replacing.flags import flags_around, is_switch, speaks, truths_of
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.configurations import annotated_configs
from fusionkit.identify.source.project import find_function, imported_file

AVAILABLE = "is_torch_npu_available"
_KNOWN_CALLS = (AVAILABLE, "is_npu_available")
_LIBRARIES = ("transformers", "diffusers")
# op -> words by which a switch speaks of it; a switch that speaks of none is for all
_WORDS = {
    "npu_rms_norm": ("norm",), "npu_add_rms_norm": ("norm",), "npu_swiglu": ("swiglu", "mlp", "glu"),
    "npu_geglu": ("geglu", "mlp", "glu"), "npu_rotary_mul": ("rope", "rotary"),
    "npu_fusion_attention": ("attn", "attention", "flash"), "npu_grouped_matmul": ("moe", "expert", "gmm", "grouped"),
    "npu_gelu": ("gelu",), "NpuFusedAdamW": ("adam", "optim"),
}  # fmt: skip
_UNUSED = "no torch_npu call stands under it yet"
_MOST_FILES = 40  # of a package that are read for switches


@dataclass(frozen=True, slots=True)
class Switch:
    """`text`: the condition. `imported`: the module that the name has to be imported from, "" where it is known."""

    text: str
    imported: str = ""
    guarded: bool = False
    existing: str = ""


def switch_for(unit: Unit, op: str) -> Switch:
    """The switch that a site's fused branch asks: an existing one of the project before a new question."""
    available = _available(unit)
    for text, where in _existing(unit):
        if _is_for(text, op):
            both = text if "npu" in text.lower() else f"{text} and {available.text}"
            return Switch(both, available.imported, available.guarded, f"{text} ({where})")
    return available


def _available(unit: Unit) -> Switch:
    """Whether torch_npu is there, as this file can ask it."""
    for name in _KNOWN_CALLS:
        if name in unit.file.modules or name in unit.file.functions:
            return Switch(f"{name}()", existing=f"{name} (this file)")
    library = library_of(unit.file.path)
    if library and find_function(unit.file, f"{library}.utils.import_utils.{AVAILABLE}") is not None:
        return Switch(f"{AVAILABLE}()", _utils_module(unit.file.path, library))
    return Switch("torch_npu is not None", guarded=True)


def library_of(path: Path) -> str:
    """The library that a file belongs to, "" for any other: told by a folder of its name that holds the library's utils."""
    for folder in path.parents:
        if folder.name in _LIBRARIES and (folder / "utils" / "import_utils.py").is_file():
            return folder.name
    return ""


def _utils_module(path: Path, library: str) -> str:
    """The library's utils as a file in it names them: relatively."""
    for depth, folder in enumerate(path.parents, start=1):
        if folder.name == library and (folder / "utils" / "import_utils.py").is_file():
            return "." * depth + "utils"
    return f"{library}.utils"


def _existing(unit: Unit) -> Iterator[tuple[str, str]]:
    """(switch as source, where it is asked or defined) for each switch of the project that this function can ask.

    Those of the class itself first, then those that some code asks already, then those that are defined only.
    """
    yield from _own(unit)
    reachable = {"self.config"} if "config" in getattr(unit.cls, "attributes", {}) else set()
    reachable |= {name for name in unit.flow.parameters if name in ("config", "args")}
    reachable |= {name for name in ("args", "config") if _is_global(unit, name)}
    asked = (*_switches(unit.file.path), *_package_switches(unit.file.path.parent))
    for text, where in (*asked, *_defined(unit)):
        base, _, _ = text.rpartition(".")
        if base:
            held = f"self.{base}" if base == "config" and "self.config" in reachable else base
            if held in reachable:
                yield f"{held}.{text.rpartition('.')[2]}", where
        elif text in _globals(unit):
            yield text, where


def _own(unit: Unit) -> Iterator[tuple[str, str]]:
    """Parameters of the class that are True or False and that it keeps under their name."""
    start = None if unit.cls is None else unit.cls.methods.get("__init__")
    if unit.cls is None or start is None or unit.builds:
        return
    for name in filter(is_switch, truths_of(start)):
        if name in unit.cls.attributes:
            asked = [text for text, where in _switches(unit.file.path) if _UNUSED not in where]
            where = f"{unit.file.path.name}:{start.lineno}"
            yield f"self.{name}", where if name in asked else f"{where}; {_UNUSED}"


def _defined(unit: Unit) -> Iterator[tuple[str, str]]:
    """Flags of configurations and argument parsers; of a configuration only if it may be the one of this class."""
    told = [] if unit.cls is None else next(filter(None, annotated_configs(unit.file, unit.cls.name)), [])
    for flag in flags_around(unit.file.path.parent):
        if not told or not flag.owner or flag.owner in told:
            yield f"{flag.base}.{flag.name}", f"{flag.where}; {_UNUSED}"


def _is_for(text: str, op: str) -> bool:
    """Whether a switch speaks of this op, or of none."""
    name = text.lower()
    spoken = {other for other, words in _WORDS.items() if any(word in name for word in words)}
    return op in spoken or not spoken


def _is_global(unit: Unit, name: str) -> bool:
    return name in _globals(unit)


def _globals(unit: Unit) -> set[str]:
    return {
        target.id
        for node in unit.file.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    } | set(unit.file.modules)


@lru_cache(maxsize=512)
def _switches(path: Path) -> tuple[tuple[str, str], ...]:
    """(switch, file:line) for the names that `if` tests of a file ask and that speak of fused or NPU code."""
    file = imported_file(path) if speaks(path) else None
    found: dict[str, str] = {}
    for node in ast.walk(file.tree) if file is not None else ():
        if not isinstance(node, ast.If):
            continue
        for item in _asked(node.test):
            text = ast.unparse(item).removeprefix("self.")
            last = text.rpartition(".")[2]
            if is_switch(last) and text.count(".") <= 1:
                where = f"{path.name}:{node.lineno}"
                if _calls_npu(node):
                    found[text] = where
                else:
                    found.setdefault(text, f"{where}; {_UNUSED}")
    return tuple(found.items())


def _calls_npu(node: ast.If) -> bool:
    """Whether something of torch_npu is called under an `if`."""
    called = [item.func for part in node.body for item in ast.walk(part) if isinstance(item, ast.Call)]
    return any("npu_" in ast.unparse(function) for function in called)


@lru_cache(maxsize=128)
def _package_switches(folder: Path) -> tuple[tuple[str, str], ...]:
    files = sorted(folder.glob("*.py"))[:_MOST_FILES]
    return tuple(dict.fromkeys(item for path in files for item in _switches(path)))


def _asked(test: ast.expr) -> Iterator[ast.expr]:
    """The plain names and attributes that a test is made of by `and`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for item in test.values:
            yield from _asked(item)
    elif isinstance(test, (ast.Name, ast.Attribute)):
        yield test
