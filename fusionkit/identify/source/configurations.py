"""What a model's configuration says where nothing is given: the default of `config.hidden_act` and its like."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from fusionkit.identify.source.files import SourceClass, SourceFile
from fusionkit.identify.source.project import note_consulted, stamp

_CONFIG = re.compile(r"\b\w*Config\b")


def config_defaults(cls: SourceClass, name: str) -> list[str]:
    """Default values (strings, and whole numbers as such) of attribute `name` of the configuration that `cls` is built with.

    Read from configuration_*.py beside the file. The annotation of `config` decides, in `cls` or in the classes that
    build it; else the configuration whose name fits that of `cls` best.
    """
    paths = tuple(sorted(cls.file.path.parent.glob("configuration_*.py")))
    for path in paths:
        note_consulted(path)
    held = _defaults_of(paths, tuple(map(stamp, paths)))
    having = {config: values[name] for config, values in held.items() if name in values}
    for told_by in annotated_configs(cls.file, cls.name) if having else ():
        told = [having[item] for item in told_by if item in having]
        if told:
            return told
    fitting = [config for config in having if _part(config) == _part(cls.name)] or list(having)
    most = max((_shared(config, cls.name) for config in fitting), default=0)
    return list(dict.fromkeys(having[config] for config in fitting if _shared(config, cls.name) == most))


def _part(name: str) -> str:
    """The part of a model that a name speaks of; text where it says nothing."""
    return next((word for word in ("Vision", "Audio", "Speech", "Vit", "Perceiver") if word in name), "Text")


def annotated_configs(file: SourceFile, name: str, depth: int = 6) -> Iterator[list[str]]:
    """Configurations annotated by a class or function of the file, then by the classes that build it, and so on up."""
    front = [name]
    for _ in range(depth):
        yield [config for item in front for config in _annotations(file, item)]
        front = [cls.name for cls in file.classes.values() if any(cls.builds(item) for item in front)]


def _annotations(file: SourceFile, name: str) -> list[str]:
    cls = file.classes.get(name)
    function = cls.methods.get("__init__") if cls else file.functions.get(name)
    if function is None:
        return []
    named = [item.annotation for item in (*function.args.args, *function.args.kwonlyargs) if item.annotation]
    return [config for item in named for config in _CONFIG.findall(ast.unparse(item))]


def _shared(one: str, other: str) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


@lru_cache(maxsize=256)
def _defaults_of(paths: tuple[Path, ...], _stamps: tuple[tuple[int, int], ...]) -> dict[str, dict[str, str]]:
    """Class -> attribute -> default, over some configuration files."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                inherited = {
                    k: v
                    for base in node.bases
                    if isinstance(base, ast.Name)
                    for k, v in found.get(base.id, {}).items()
                }
                own = dict(_defaults(node))
                renamed = {name: own[kept] for name, kept in _attribute_map(node) if kept in own}
                found[node.name] = inherited | own | renamed
    return found


def _attribute_map(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """`attribute_map`: the names under which a configuration also gives its attributes."""
    for item in node.body:
        named = [t.id for t in getattr(item, "targets", []) if isinstance(t, ast.Name)]
        if "attribute_map" in named and isinstance(getattr(item, "value", None), ast.Dict):
            for key, value in zip(item.value.keys, item.value.values, strict=True):  # type: ignore[attr-defined]
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), str(value.value)


def _defaults(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
            yield from _text(item.target.id, item.value)
        elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            yield from _text(item.targets[0].id, item.value)
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            named = item.args.args[len(item.args.args) - len(item.args.defaults) :]
            for argument, default in zip(named, item.args.defaults, strict=True):
                yield from _text(argument.arg, default)


def _text(name: str, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(value, ast.Call):  # a validator around the default
        value = next((item.value for item in value.keywords if item.arg == "default"), value)
    if isinstance(value, ast.Constant) and type(value.value) in (str, int):
        yield name, str(value.value)
