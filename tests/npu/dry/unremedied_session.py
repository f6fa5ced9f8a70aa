"""Script: asks for npu-dry with a stand-in that leaves the keys of the allocator's configuration to torch."""

from __future__ import annotations

from dry_processes import answer, outcome

from fusionkit.npu.dry import standin
from fusionkit.npu.dry.behaviours import BEHAVIOURS, CONFIGURATION_KEYS
from fusionkit.npu.target import current_target, use_target

standin.BEHAVIOURS = {name: row for name, row in BEHAVIOURS.items() if name != CONFIGURATION_KEYS}
answer({"npu-dry": outcome(lambda: use_target("npu-dry")), "target": current_target()})
