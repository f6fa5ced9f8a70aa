"""The result of a counterexample search: what was exercised, and the input on which the two computations differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from fusionkit.encoding import Result, decode
from fusionkit.errors import MisuseError
from fusionkit.numeric.regimes import into
from fusionkit.store import write_bytes
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Counterexample(Result, without=("inputs",), schema="fusionkit.counterexample/1"):
    """An input on which the two differ. `row`: of the output flattened to (rows, last dim); the values are that row's.

    names: of the inputs. inputs: tensors and literals, to be given to either computation.
    """

    argument: str
    regime: str
    row: int
    expected: tuple[float, ...]
    actual: tuple[float, ...]
    reason: str
    names: tuple[str, ...]
    inputs: tuple[Any, ...] = field(repr=False, compare=False)

    def __str__(self) -> str:
        values = f"expected {_few(self.expected)}, actual {_few(self.actual)}"
        return f"{self.argument}, {self.regime}: {self.reason} (row {self.row}: {values})"

    def write(self, path: Path) -> Path:
        """Keep it as safetensors: one tensor for each input, with strides, literals and texts in the metadata."""
        tensors, layout = {}, []
        for index, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor):
                tensors[str(index)] = value.contiguous().clone()
                layout.append({"stride": list(value.stride())})
            else:
                layout.append({"literal": value})
        texts = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "inputs"}
        # json.dumps rather than to_dict, which has None for NaN
        metadata = {"counterexample": json.dumps(texts), "inputs": json.dumps(layout, default=str)}
        return write_bytes(path, save(tensors, metadata))


def write_counterexamples(
    folder: Path, shown: Sequence[tuple[str, Counterexample]], prefix: str = ""
) -> list[Path]:
    """Write each named one as `<prefix><number>_<name>.safetensors` into `folder`; the files."""
    return [
        example.write(folder / f"{prefix}{number}_{name}.safetensors")
        for number, (name, example) in enumerate(shown, 1)
    ]


def load_counterexample(path: Path) -> Counterexample:
    """Read what `Counterexample.write` wrote. Raises MisuseError for another file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            stored = json.loads(metadata["counterexample"])
            inputs = [
                _strided(file.get_tensor(str(index)), item["stride"]) if "stride" in item else item["literal"]
                for index, item in enumerate(json.loads(metadata["inputs"]))
            ]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise MisuseError(f"{path}: no counterexample of fusionkit ({error})") from error
    return replace(decode(Counterexample, stored | {"inputs": []}, str(path)), inputs=tuple(inputs))


def _strided(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    return into(torch.empty_strided(tensor.shape, tuple(stride), dtype=tensor.dtype), tensor)


@dataclass(frozen=True, slots=True)
class Search(Result):
    """`exercised`: kind (arguments, regimes, bounds, layouts, calls, gradients) -> what was judged; `not_exercised`: the rest."""

    verdict: Verdict
    reason: str
    exercised: Mapping[str, tuple[str, ...]]
    not_exercised: tuple[str, ...]
    counterexample: Counterexample | None = None

    def __bool__(self) -> bool:
        """Whether the verdict is PASS."""
        return bool(self.verdict)


def _few(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]" if values else "nothing"
