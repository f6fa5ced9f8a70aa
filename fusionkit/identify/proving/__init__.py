"""The proof of a replacement: the original and the replaced code run side by side on target cpu, in a subprocess."""

from __future__ import annotations

from fusionkit.identify.proving.proof import Figures, Proof, Run
from fusionkit.identify.proving.prove import proof_server, prove, prove_file

__all__ = ["Figures", "Proof", "Run", "proof_server", "prove", "prove_file"]
