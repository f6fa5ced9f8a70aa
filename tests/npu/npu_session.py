"""Script: target npu on a fake torch_npu, a module in a folder of its own that records what it is asked.

The arguments: the folder, and an empty folder to stand for the cache.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from dry_processes import answer, outcome

from fusionkit.npu import real
from fusionkit.npu.real import import_torch_npu, seeded_device, standin_is_loaded, synchronize
from fusionkit.npu.target import current_device, current_target, use_target
from fusionkit.npu.versions import InstalledTorchNpu

FAKE = """
import torch
calls = []
__version__ = "fake"
class Device:
    available = False
    state = 7
    def is_available(self): calls.append("is_available"); return self.available
    def current_device(self): return 0
    def device_count(self): return 1
    def manual_seed_all(self, seed): calls.append(["seed", seed]); self.state = seed
    def get_rng_state(self, device=None): return torch.tensor([self.state])
    def set_rng_state(self, state, device=None): self.state = int(state); calls.append(["restore", self.state])
    def synchronize(self): calls.append("synchronize")
torch.npu = Device()
"""
OPS = "npu_swiglu(Tensor input, int dim=-1) -> Tensor"

folder = Path(sys.argv[1])
os.environ["FUSIONKIT_CACHE"] = sys.argv[2]
seen: dict[str, object] = {}


def tried(text: str) -> list[str]:
    """What `import_torch_npu` makes of a torch_npu with this text."""
    (folder / "torch_npu.py").write_text(text)
    sys.modules.pop("torch_npu", None)
    vars(torch).pop("npu", None)
    sys.path_importer_cache.clear()
    for path in (folder / "__pycache__").glob("*"):
        path.unlink()
    return outcome(import_torch_npu)


seen["missing"] = outcome(lambda: use_target("npu"))
sys.path.insert(0, str(folder))
seen["no CANN"] = tried("raise ImportError('libhccl.so: cannot open shared object file\\nand more')")
seen["no driver"] = tried("raise RuntimeError('drv not found')")
seen["no device module"] = tried("")
real.installed_torch_npu = lambda: InstalledTorchNpu(folder, "1.2.3")
seen["another release"] = tried(FAKE)
real.installed_torch_npu = lambda: None
seen["no device"] = tried(FAKE)
seen["stand-in"] = standin_is_loaded()

vars(torch)["npu"].available = True
seen["found"] = outcome(import_torch_npu)[0]
module = sys.modules["torch_npu"]
module.calls.clear()
torch.utils.rename_privateuse1_backend("npu")
synchronize()
with seeded_device(5):
    seen["inside"] = torch.npu.state
seen["after"] = torch.npu.state
try:
    with seeded_device(6):
        raise OSError("in the block")
except OSError:
    seen["after an error"] = torch.npu.state
seen["calls"] = list(module.calls)

from fusionkit.npu.schemas import SCHEMAS  # noqa: E402

library = torch.library.Library("npu", "FRAGMENT")
for schema in SCHEMAS.values():
    library.define(schema)
facade = use_target("npu")
seen["target"] = [current_target(), current_device(), facade.npu.is_available(), facade.__version__]
seen["kit's ops"] = torch._C._dispatch_has_kernel_for_dispatch_key(
    "fusionkit::layer_norm_scale_shift", "PrivateUse1"
)
seen["cpu after it"] = outcome(lambda: use_target("cpu"))
answer(seen)
