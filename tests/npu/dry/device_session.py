"""Script: what becomes of real (not fake) work on the dry device."""

from __future__ import annotations

import warnings

from dry_processes import activate_dry, answer, outcome, raised

warnings.simplefilter("ignore")
activate_dry()

import device_calls as calls  # noqa: E402 - they need the device
import device_kernels as kernels  # noqa: E402

from fusionkit.npu.dry.refusal import ALLOWED  # noqa: E402

names = kernels.registered_names()
kernels_of_others = kernels.kernels_of_others()
answer(
    {
        "names": names,
        "kernels of others": kernels_of_others,
        "allowed": sorted(ALLOWED),
        "kernels": kernels.call_every_kernel([name for name in names if name not in kernels_of_others]),
        "functions": kernels.standin_functions(),
        "refused": {name: raised(call) for name, call in calls.REFUSED.items()},
        "raises": {name: raised(call) for name, call in calls.RAISES.items()},
        "works": {name: [outcome(call), repr(expected)] for name, (call, expected) in calls.WORKS.items()},
    }
)
