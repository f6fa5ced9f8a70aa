"""Seals on the proofs that a process hands over: the code that is proven runs in that process, and may write files too."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from fusionkit.identify.proving.proof import Proof
from fusionkit.store import to_json


def sealed(proof: Proof, key: str) -> dict[str, Any]:
    """A proof with its seal, as JSON types."""
    told = proof.to_dict()
    return {"proof": told, "seal": _seal(told, key)}


def opened(value: Any, key: str) -> Proof | None:
    """The proof of a sealed one; None where the seal is not that of `key`."""
    if not isinstance(value, dict) or not isinstance(value.get("proof"), dict):
        return None
    if not hmac.compare_digest(str(value.get("seal")), _seal(value["proof"], key)):
        return None
    return Proof.from_dict(value["proof"])


def _seal(told: dict[str, Any], key: str) -> str:
    return hmac.new(key.encode(), to_json(told).encode(), hashlib.sha256).hexdigest()
