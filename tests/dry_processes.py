"""Processes of their own for the tests: one target per process, and activation of npu-dry takes seconds.

A script does many things in one process and answers with JSON (`answer`); a fixture of a test module runs it
(`run_script`, or `run_dry_script` for one that needs the npu-dry target), and the tests look at the parts.

Where npu-dry is not available those tests are skipped with the reason that `fusionkit doctor` gives, or fail if
FUSIONKIT_REQUIRE_DRY=1 (as in CI). The cache is the user's own, so that the wheel is fetched once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

TESTS = Path(__file__).resolve().parent
_UNAVAILABLE = "npu-dry is not available"


def run_script(script: Path, *words: str, env: Mapping[str, str] | None = None) -> Any:
    """Run a script of the tests in a process of its own and return what it answered."""
    done = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=process_environment(env),
    )
    assert done.returncode == 0, f"{script.name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def run_dry_script(script: Path, *words: str) -> Any:
    """`run_script` for one that calls `activate_dry`; skips or fails the test where that is not possible."""
    answered = run_script(script, *words)
    if _UNAVAILABLE in answered:
        unavailable(answered[_UNAVAILABLE])
    return answered


def unavailable(reason: str) -> NoReturn:
    """Skip the test with a reason, or fail it where npu-dry is required."""
    if os.environ.get("FUSIONKIT_REQUIRE_DRY") == "1":
        pytest.fail(f"{reason} (FUSIONKIT_REQUIRE_DRY=1)")
    pytest.skip(reason)


def process_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that can import what stands in tests/."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | dict(changes or {})


# What the scripts use.


def answer(value: Any) -> None:
    """The script's answer, on a line of its own at the end."""
    print("\n" + json.dumps(value), flush=True)


def activate_dry() -> Any:
    """The facade of npu-dry; where it is not available the script ends here, saying why."""
    from fusionkit.errors import FusionKitError
    from fusionkit.npu.target import use_target

    try:
        return use_target("npu-dry")
    except FusionKitError as error:
        answer({_UNAVAILABLE: str(error)})
        sys.exit()


def outcome(call: Callable[[], Any], shown: Callable[[Any], str] = repr) -> list[Any]:
    """["value", what `shown` says of it] of a call, or [type, text] of what the call raised."""
    try:
        value = call()
    except Exception as error:  # noqa: BLE001 - any error is the answer
        return [type(error).__name__, str(error)]
    return ["value", shown(value)]


def raised(call: Callable[[], Any]) -> list[Any]:
    """`outcome` of a call that ought to raise; of its value only the type is told, since a look may raise, too."""
    return outcome(call, lambda value: type(value).__name__)
