"""The stand-in for CANN: C source from the wanted symbols and the table of behaviours, and its compilation."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.behaviours import BEHAVIOURS, REFUSED
from fusionkit.npu.dry.symbols import WantedSymbols
from fusionkit.store import read_json, sha256_file, write_json

_SOC_NAME = re.compile(r"Ascend[A-Za-z0-9_]+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_RECORD = "sha256.json"
_HEADER = ("#include <stdint.h>", "#include <stdlib.h>", "#include <string.h>")


def c_source(wanted: WantedSymbols, soc_name: str) -> str:
    """The stand-in's C source: each wanted symbol has the table's behaviour, or returns a failure.

    Of the names that are looked up at run time, only those in the table exist. Raises MisuseError for an invalid SoC
    name.
    """
    if not _SOC_NAME.fullmatch(soc_name):
        raise MisuseError(f"SoC name {soc_name!r} is none; give one such as Ascend910B1 in FUSIONKIT_SOC")
    names = sorted({*wanted.linked, *(name for name in BEHAVIOURS if name in wanted.named)})
    lines = [*_HEADER, f'#define SOC_NAME "{soc_name}"']
    for name in names:
        behaviour = BEHAVIOURS.get(name)
        if behaviour is not None:
            lines.append(behaviour.definition(name))
        elif _IDENTIFIER.fullmatch(name):
            lines.append(f"int {name}(void) {{ return {REFUSED}; }}")
    return "\n".join(lines) + "\n"


def compiler() -> list[str]:
    """The command of the machine's C compiler. Raises MisuseError without one."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        with contextlib.suppress(ValueError):  # unclosed quote
            words = shlex.split(candidate)
            if words and shutil.which(words[0]):
                return words
    raise MisuseError(
        "target npu-dry needs a C compiler and finds none (CC, cc, gcc, clang);"
        " on Debian and Ubuntu: apt-get install gcc libc6-dev"
    )


def compile_standin(source: str, sonames: tuple[str, ...], folder: Path) -> None:
    """Compile `source` into `folder` (existing), once for each library name.

    Raises MisuseError with the compiler's first error.
    """
    text = folder / "standin.c"
    text.write_text(source, "utf-8")
    command = [*compiler(), "-shared", "-fPIC", "-O1", "-w"]
    for soname in sonames:
        words = [*command, f"-Wl,-soname,{soname}", "-o", str(folder / soname), str(text)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MisuseError(f"target npu-dry: {words[0]} does not run ({error})") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            said = next((line for line in lines if "error" in line), lines[0])
            raise MisuseError(
                f"target npu-dry: {words[0]} cannot compile the stand-in ({said});"
                " on Debian and Ubuntu: apt-get install gcc libc6-dev"
            )
    write_json(folder / _RECORD, {soname: sha256_file(folder / soname) for soname in sonames})


def is_compiled(folder: Path) -> bool:
    """Whether all libraries compiled into `folder` exist unchanged."""
    try:
        record = read_json(folder / _RECORD)
        if not isinstance(record, dict) or not record:
            return False
        return all(sha256_file(folder / soname) == digest for soname, digest in record.items())
    except MisuseError:
        return False
