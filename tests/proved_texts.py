"""Loose files of a test's own: proved against replacements that are written by hand."""

from __future__ import annotations

import atexit
import textwrap
from functools import cache
from pathlib import Path

from fusionkit.forking import ForkServer
from fusionkit.identify.proving import Proof, proof_server, prove_file
from fusionkit.identify.scan_file import sites_of_text

GUARD = """
try:
    import torch_npu
except ImportError:
    torch_npu = None
"""


@cache
def shared_server() -> ForkServer:
    """One server for all proofs of this process's tests, each of which is a fork of its own."""
    server = proof_server()
    atexit.register(server.close)
    return server


def guarded(text: str, body: str, fused: str, condition: str = "torch_npu is not None") -> str:
    """The text with the lines of `body` under else, and `fused` under the condition before them."""
    assert text.count(body) == 1
    indent = body[: len(body) - len(body.lstrip())]
    branch = textwrap.indent(textwrap.dedent(fused).strip("\n"), indent + "    ")
    other = textwrap.indent(body.rstrip("\n"), "    ")
    return GUARD + text.replace(body, f"{indent}if {condition}:\n{branch}\n{indent}else:\n{other}\n")


def prove_texts(folder: Path, text: str, op: str, *texts: str, **options) -> list[Proof]:
    """Proofs of rewritten texts of one file with one site of that op."""
    path = folder / "model.py"
    path.write_text(text, "utf-8")
    (site,) = [site for site in sites_of_text(path, text) if site.op == op]
    return prove_file(path, [(site, new) for new in texts], server=shared_server(), **options)
