"""Script: starts torch_npu as `use_target` does; tells the keys that it registered, and where its files are."""

from __future__ import annotations

import sys
from pathlib import Path

from dry_processes import activate_dry, answer

sys.path.insert(0, str(Path(__file__).parent))
from configuration_keys import registered_keys

activate_dry()
import torch  # noqa: E402

from fusionkit.npu.dry.cache import prepare  # noqa: E402
from fusionkit.npu.dry.cache_folder import WHEELS, cache_root  # noqa: E402
from fusionkit.npu.dry.wheel import cached_wheel  # noqa: E402

prepared = prepare()
answer(
    {
        "keys": registered_keys(prepared.libraries[0]),
        "wheel": str(cached_wheel(cache_root() / WHEELS, torch.__version__)),
        "started": (prepared.libraries[0].parent / "started.json").is_file(),
    }
)
