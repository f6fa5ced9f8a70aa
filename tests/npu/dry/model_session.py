"""Script: npu-dry is activated first, then asked what it is, then a model of diffusers is captured on it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter

# Whatever activation writes to the standard streams, from below Python as well.
written = tempfile.TemporaryFile()  # noqa: SIM115
kept = [os.dup(1), os.dup(2)]
os.dup2(written.fileno(), 1)
os.dup2(written.fileno(), 2)

from dry_processes import activate_dry, answer, outcome  # noqa: E402

from fusionkit.npu.target import current_device, current_target, shows_values, use_target  # noqa: E402

try:
    facade = activate_dry()
finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(kept[0], 1)
    os.dup2(kept[1], 2)
    written.seek(0)
    said = written.read().decode()
    print(said, end="")

import torch  # noqa: E402

from fusionkit.capture.capturing import capture_graphs  # noqa: E402
from fusionkit.npu.real import import_torch_npu, standin_is_loaded  # noqa: E402
from fusionkit.npu.schemas import SCHEMAS  # noqa: E402
from fusionkit.subjects.build import new_fake_mode  # noqa: E402
from fusionkit.subjects.load import load_subject  # noqa: E402


def schema(name: str) -> str:
    packet, _, overload = name.partition(".")
    return str(getattr(getattr(torch.ops.npu, packet), overload or "default")._schema)


with new_fake_mode():
    fake_item = outcome(lambda: torch.tensor(3.0, device="npu").item())
    fake_host_item = outcome(lambda: torch.tensor(3.0).item())

capture = capture_graphs(load_subject("qwen-image"))
nodes = [node for graph in capture.graphs for node in graph.nodes if node.op == "call_function"]
answer(
    {
        "quiet": said,
        "again": use_target("npu-dry") is facade,
        "now": [current_target(), current_device(), shows_values(current_target())],
        "others": {name: outcome(lambda: use_target(name)) for name in ("cpu", "npu")},  # noqa: B023
        "stand-in": standin_is_loaded(),
        "real": outcome(import_torch_npu),
        "available": [facade.npu.is_available(), torch.npu.is_available()],
        "own attribute": callable(facade.npu_fusion_attention),
        "schemas": {name: schema(name) for name in SCHEMAS},
        "ops": Counter(str(node.target) for node in nodes),
        "devices": sorted(
            {str(node.meta["val"].device) for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)}
        ),
        "fake item": fake_item,
        "fake item on the host": fake_host_item,
    }
)
