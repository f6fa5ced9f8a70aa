"""Start the proof in a process of its own, with a time limit, and read what it leaves.

The process imports and runs code that the user names: whatever that prints, ends or breaks stays in there, and on Linux
what it starts ends with it. It is no sandbox: the code has the user's rights, files and network.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fusionkit.errors import MisuseError
from fusionkit.forking import ForkedProcess, ForkServer
from fusionkit.identify.proving.proof import Proof
from fusionkit.identify.proving.seals import opened
from fusionkit.identify.scan_file import Site
from fusionkit.processes import BACKEND_AUTOLOAD
from fusionkit.store import read_json, write_json
from fusionkit.verdict import Verdict

TIME_LIMIT_S = 180.0
"""Default limit of one file's process: importing a model library alone takes some seconds."""

DTYPES = ("float32", "bfloat16")

_GRACE_S = 10.0  # for the supervisor to kill what descends from it

_LAST_LINE = 300  # characters of a crashed process's last line that a reason quotes


def proof_server() -> ForkServer:
    """What forks the processes of proofs: torch, the kit's own code and target cpu are in place there.

    So is torch._dynamo, which the first call under a dispatch mode imports (torch/_compile.py).
    """
    worker = "fusionkit.identify.proving.worker"
    modules = [worker, "torch._dynamo"]
    return ForkServer(modules, prepare=[f"{worker}:prepare"], environment={BACKEND_AUTOLOAD: "0"})


def prove(
    path: Path,
    site: Site,
    new_text: str,
    *,
    time_limit_s: float = TIME_LIMIT_S,
    dtypes: Sequence[str] = DTYPES,
    seed: int = 0,
    server: ForkServer | None = None,
) -> Proof:
    """Run the code at `site` of `path` and its replacement side by side on target cpu, and compare.

    `new_text`: the whole rewritten file. The class (with random weights) or function is called over several shapes
    in each of `dtypes` and under autocast, forward, and backward where the op has one. Never raises for what the
    user's code does: what cannot be built, run or compared is INCONCLUSIVE with its reason, and so is a time limit;
    replaced code that raises, or ends the process, where the original runs is FAIL. `server`: see `prove_file`.
    Raises MisuseError for a dtype other than float32, bfloat16, float16.
    """
    texts = [(site, new_text)]
    return prove_file(path, texts, time_limit_s=time_limit_s, dtypes=dtypes, seed=seed, server=server)[0]


def prove_file(
    path: Path,
    replacements: Sequence[tuple[Site, str]],
    *,
    time_limit_s: float = TIME_LIMIT_S,
    dtypes: Sequence[str] = DTYPES,
    seed: int = 0,
    server: ForkServer | None = None,
) -> list[Proof]:
    """`prove` for several replacements of one file, in one process; the limit counts for each.

    `server`: a `proof_server` of several calls, which then import torch once; the caller closes it.
    """
    unknown = set(dtypes) - {"float32", "bfloat16", "float16"}
    if unknown:
        raise MisuseError(f"dtype {sorted(unknown)[0]}: a proof runs in float32, bfloat16 or float16")
    proofs: list[Proof] = []
    with proof_server() if server is None else contextlib.nullcontext(server) as forks:
        while len(proofs) < len(replacements):  # a process that ended early leaves the rest to another one
            rest = replacements[len(proofs) :]
            request = {
                "path": str(path.resolve()),
                "sites": [asdict(site) for site, _ in rest],
                "texts": [text for _, text in rest],
                "dtypes": list(dtypes),
                "seed": seed,
            }
            proofs += _prove_rest(forks, path, [site for site, _ in rest], request, time_limit_s)
    return proofs


def _prove_rest(
    server: ForkServer, path: Path, sites: Sequence[Site], request: Any, time_limit_s: float
) -> list[Proof]:
    """Proofs of the first sites, at least one: all that one process finished, and the one at which it ended."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fusionkit-proof-") as name:
        folder = Path(name)
        write_json(folder / "request.json", request)
        key = secrets.token_hex()
        ending = _run_process(server, folder, time_limit_s, len(sites), key)
        done = []
        for index in range(len(sites)):
            result = folder / f"{index}.json"
            if not result.is_file():
                break
            proof = _opened(result, key)
            if proof is None:
                ending = "the code that was run wrote a result of its own"
                break
            done.append(replace(proof, file=str(path)))
        if len(done) == len(sites):
            return done
        stage = _read(folder / "stage")
        site = sites[len(done)]
    verdict, reason = _broken(ending, stage)
    seconds = time.monotonic() - started
    return [*done, Proof(site.op, str(path), site.symbol, verdict, reason, seconds=round(seconds, 3))]


def _run_process(server: ForkServer, folder: Path, time_limit_s: float, sites: int, key: str) -> str:
    """How the process ended: "" by itself with code 0, else in a few words."""
    work = folder / "work"
    work.mkdir()
    there, here = os.pipe()
    with (folder / "output").open("wb") as output, os.fdopen(here, "wb") as pipe:
        try:
            process = server.fork(
                "fusionkit.identify.proving.supervisor:main",
                [str(folder)],
                streams=(there, output.fileno(), output.fileno()),
                cwd=work,
                environment={**os.environ, BACKEND_AUTOLOAD: "0"},
            )
        finally:
            os.close(there)
        try:
            with contextlib.suppress(BrokenPipeError), pipe:  # where it has ended already, _wait says so
                pipe.write(f"{key}\n".encode())
            return _wait(process, folder, time_limit_s, sites)
        finally:
            _stop(process)


def _stop(process: ForkedProcess) -> None:
    """End the process and whatever it has started: by itself in time, else as far as its session goes."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _opened(path: Path, key: str) -> Proof | None:
    try:
        return opened(read_json(path), key)
    except MisuseError:
        return None


def _wait(process: ForkedProcess, folder: Path, time_limit_s: float, sites: int) -> str:
    """Wait for the process, `time_limit_s` anew after every site it has finished."""
    for index in range(sites):
        deadline = time.monotonic() + time_limit_s
        while not (folder / f"{index}.json").is_file():
            if time.monotonic() > deadline:
                return f"time limit reached: {time_limit_s:g} s"
            try:
                code = process.wait(timeout=min(0.2, time_limit_s))
            except subprocess.TimeoutExpired:
                continue
            return f"the process ended with code {code}{_last_line(folder / 'output')}"
    return ""


def _broken(ending: str, stage: str) -> tuple[Verdict, str]:
    """The verdict where a process left no result. Only the replaced code's own end is its failure."""
    where = f" while {stage}" if stage else ""
    guilty = stage.startswith("the replaced code") and not ending.startswith("time limit")
    return Verdict.FAIL if guilty else Verdict.INCONCLUSIVE, f"{ending}{where}"


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in _read(path).splitlines() if line.strip()]
    return f" ({lines[-1][:_LAST_LINE]})" if lines else ""


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 8192))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
