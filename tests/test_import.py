"""`import fusionkit` is light, and every public name is there when it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import fusionkit

RESOLVE = """
import importlib, json, pkgutil, types
import fusionkit
problems = []
for _ in "first use", "once every package is loaded":
    for name in fusionkit.__all__:
        try:
            value = getattr(fusionkit, name)
        except (ImportError, AttributeError) as error:
            problems.append(f"{name}: {error}")
            continue
        if name != "__version__" and (isinstance(value, types.ModuleType) or not callable(value)):
            problems.append(f"fusionkit.{name} is {value!r}, not the public function or class")
    for module in pkgutil.iter_modules(fusionkit.__path__):
        if module.ispkg:
            importlib.import_module(f"fusionkit.{module.name}")
print(json.dumps(problems))
"""


def fresh(code: str) -> str:
    """Run `code` in a new interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout


def test_import_loads_neither_torch_nor_torch_npu():
    loaded = json.loads(
        fresh("import fusionkit, json, sys; dir(fusionkit); print(json.dumps(sorted(sys.modules)))")
    )
    assert "fusionkit" in loaded
    heavy = {"torch", "torch_npu", "numpy", "pandas", "transformers", "diffusers", "ipywidgets"}
    assert not heavy.intersection(name.partition(".")[0] for name in loaded)


def test_every_public_name_resolves_and_stays():
    assert json.loads(fresh(RESOLVE)) == []


def test_the_public_face_is_small():
    assert len(set(fusionkit.__all__) - {"__version__"}) <= 15
    assert dir(fusionkit) == sorted(fusionkit.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(fusionkit, "no_such_name")
