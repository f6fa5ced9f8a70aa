"""Child processes: their environment, and their return codes in words."""

from __future__ import annotations

import os
import signal

# Unless this is 0, `import torch` loads an installed torch_npu: without CANN that fails, and with CANN it precedes the
# choice of the target.
BACKEND_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def disable_backend_autoload() -> None:
    """Keep a later `import torch` from loading torch_npu, in this process and its children."""
    os.environ[BACKEND_AUTOLOAD] = "0"


def ending(return_code: int) -> str:
    """A return code of `subprocess` in words: "exit code 3", or the name of the signal, such as "SIGABRT"."""
    if return_code >= 0:
        return f"exit code {return_code}"
    try:
        return signal.Signals(-return_code).name
    except ValueError:
        return f"signal {-return_code}"
