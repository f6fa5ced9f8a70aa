"""Script: activates npu-dry and tells which torch_npu that is."""

from __future__ import annotations

from dry_processes import activate_dry, answer

facade = activate_dry()
import torch  # noqa: E402

answer({"file": facade.__file__, "version": facade.__version__, "devices": torch.npu.device_count()})
