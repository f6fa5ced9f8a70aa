"""How long the evidence run takes, beside what seven empty notebooks cost in the same minutes.

    python benchmarks/evidence_run.py [PARAMETERS.yaml]

Prints wall and CPU seconds of both; exit 1 when the evidence run takes more than 180 s of wall time.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 180.0

_EMPTY = """# %% [markdown]
# # Empty

# %% tags=["parameters"]
run_dir: str = "evidence/interactive"

# %%
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, write_phase
from fusionkit.verdict import Verdict

# %%
record = PhaseRecord(
    phase={number}, notebook="{name}", subject="none", target="cpu", window="none", dtype="none",
    gates=[Gate("nothing", Verdict.PASS, "empty")],
)
write_phase(run_dir, record)
"""


def timed(words: list[str]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds of the process and its children, return code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    code = subprocess.call(
        [sys.executable, "-m", *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, code


def empty_notebooks(folder: Path) -> Path:
    """Seven notebooks that only write a passing phase."""
    for number in range(1, 8):
        name = f"{number:02d}_empty"
        (folder / f"{name}.py").write_text(_EMPTY.format(number=number, name=name))
    subprocess.check_call(
        [sys.executable, str(ROOT / "tools/pair_notebooks.py"), str(folder)], stdout=subprocess.DEVNULL
    )
    (folder / "empty.yaml").write_text("{}\n")
    return folder


def main() -> int:
    parameters = sys.argv[1] if len(sys.argv) > 1 else "parameters/flux-tiny.yaml"
    with tempfile.TemporaryDirectory() as name:
        folder = empty_notebooks(Path(name))
        empty = [
            "fusionkit.cli",
            "run",
            str(folder / "empty.yaml"),
            "--notebooks-dir",
            name,
            "--out",
            f"{name}/empty",
        ]
        rows = {
            "seven empty notebooks": timed(empty),
            parameters: timed(["fusionkit.cli", "run", parameters, "--out", f"{name}/run"]),
        }
    for what, (wall, cpu, code) in rows.items():
        print(f"{wall:8.1f} s wall  {cpu:8.1f} s cpu  exit {code}  {what}")
    wall, _, code = rows[parameters]
    return 0 if code == 0 and wall <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
