"""The tiny subjects' capsules, captured once, with both windows and the independent count of sites."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

# Nothing is tuned on the held-out ones.
TUNED = (
    "flux",
    "llama",
    "wan",
    "flux2",
    "qwen-image",
    "sd3",
    "z-image",
    "minimax-h3",
    "qwen3",
    "gpt-oss",
    "deepseek-v3",
    "gpt-j",
    "qwen3-moe",
)
OWN = "mismatches.own_models:build"  # small modules of a user's own, with patterns of few ops
HELD_OUT = ("gemma3", "hunyuan-video", "glm4")


def default_folder() -> Path:
    """Where the capsules are kept from one run to the next."""
    return Path(tempfile.gettempdir()) / "fusionkit-mismatches"


def capsule_of(subject: str, folder: Path) -> Path:
    """The capsule of a subject; it is captured where it is not there yet."""
    path = folder / f"{subject}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "fusionkit.cli", "capture", subject, "--out", str(path)]
        command += ["--window", "after-freezing"]
        subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[1])
    return path
