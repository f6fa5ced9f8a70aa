"""The kernel of a notebook: always this interpreter, with a scratch folder instead of the user's settings.

It is forked from a process that has imported ipykernel and torch, which takes longer than many a notebook.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

from fusionkit.forking import ForkedProcess, ForkServer
from fusionkit.processes import BACKEND_AUTOLOAD

KERNEL_NAME = "python3"
KERNEL_LOG = "kernel.log"
_LONGEST_IPC_FOLDER = 80  # a socket's path has at most 107 characters (Linux, unix(7)), 103 on macOS


def kernel_server(target: str = "", modules: Sequence[str] = (), subject: str = "") -> ForkServer:
    """What forks kernels: ipykernel and torch are imported there.

    With `target` every kernel runs that target; it is chosen there, and `modules` and the class of `subject`, if it is
    one of the table, are imported. Without, no target is chosen yet.
    """
    return ForkServer(
        ["ipykernel.kernelapp", "ipykernel.zmqshell", "torch"],
        prepare=["fusionkit.execution.kernel:prepare", target, list(modules), subject] if target else (),
        environment={BACKEND_AUTOLOAD: "0"},
    )


def prepare(target: str, modules: Sequence[str], subject: str) -> None:
    """Choose the target, import `modules` and the class of a subject; an error is left for the notebook to report."""
    from fusionkit.npu.target import use_target
    from fusionkit.subjects.build import import_class
    from fusionkit.subjects.table import SUBJECTS

    try:
        use_target(target)
        for name in modules:
            importlib.import_module(name)
        if subject in SUBJECTS:
            import_class(SUBJECTS[subject].model, subject)
    except Exception:  # noqa: BLE001  an import raises anything, and the notebook, which repeats it, reports it
        return


def kernel_manager_class(
    server: ForkServer, scratch: Path, started: Callable[[ForkedProcess], None]
) -> type[AsyncKernelManager]:
    """A kernel manager whose kernels `server` forks, whatever kernelspecs are installed.

    The connection file, the sockets, IPython's profile and the process's output (KERNEL_LOG) are in `scratch`, so that
    neither the home folder nor the user's start-up files are used. `started` is called with the kernel's process.
    """

    class InterpreterKernelManager(AsyncKernelManager):
        """Kernel manager of this interpreter."""

        def __init__(self, **traits: Any) -> None:
            transport = "ipc" if len(str(scratch)) <= _LONGEST_IPC_FOLDER else "tcp"
            connection_file = str(scratch / "kernel.json")
            super().__init__(**{**traits, "connection_file": connection_file, "transport": transport})

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(
                argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                display_name="Python 3",
                language="python",
            )

        async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
            environment = {
                **(options.pop("env", None) or os.environ),
                BACKEND_AUTOLOAD: "0",
                "IPYTHONDIR": str(scratch / "ipython"),
            }
            with (scratch / KERNEL_LOG).open("wb") as output, open(os.devnull, "rb") as nothing:
                process = server.fork(
                    "ipykernel.kernelapp:launch_new_instance",
                    [kernel_cmd[kernel_cmd.index("-f") :]],
                    streams=(nothing.fileno(), output.fileno(), output.fileno()),
                    cwd=Path(options.get("cwd") or os.curdir).absolute(),
                    environment=environment,
                )
            provisioner = cast(Any, self.provisioner)
            provisioner.process, provisioner.pid, provisioner.pgid = process, process.pid, process.pid
            self._reconcile_connection_info(provisioner.connection_info)
            started(process)

    return InterpreterKernelManager
