"""What the processes that the kit starts have in common: their environment, and how an end reads."""

from __future__ import annotations

import os
import signal
import sys

# `import torch` loads an installed torch_npu by itself unless this is 0. On a machine without CANN that fails, and
# with CANN it comes before the target is chosen.
BACKEND_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def disable_backend_autoload() -> None:
    """Keep torch, which is not imported yet, from loading torch_npu in this process and in those that it starts."""
    os.environ[BACKEND_AUTOLOAD] = "0"


def module_command(module: str, *words: str) -> list[str]:
    """`python -m module words` with this interpreter and this process's own sys.path, whatever the current folder holds."""
    run = f"import sys; sys.path[:] = {sys.path!r}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return [sys.executable, "-P", "-c", run, *words]


def ending(return_code: int) -> str:
    """A return code of `subprocess` in words: "exit code 3", or the name of the signal, such as "SIGABRT"."""
    if return_code >= 0:
        return f"exit code {return_code}"
    try:
        return signal.Signals(-return_code).name
    except ValueError:
        return f"signal {-return_code}"
