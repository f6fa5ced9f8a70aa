"""fusionkit doctor: the targets available on this machine, and how to get the others."""

from __future__ import annotations

import argparse

from fusionkit.commands.command import Command, step, write_line, write_result
from fusionkit.commands.subject import target_name


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", type=target_name, help="set up and try one target; exit 2 if it is not available"
    )
    parser.add_argument("--clear-cache", action="store_true", help="remove what npu-dry fetched and compiled")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _doctor(arguments: argparse.Namespace) -> int:
    from fusionkit.npu.doctor import target_states, try_target
    from fusionkit.npu.dry.cache import cache_bytes, clear_cache
    from fusionkit.npu.dry.cache_folder import cache_root

    if arguments.clear_cache:
        clear_cache()
    states = target_states() if arguments.target is None else [try_target(arguments.target, step)]
    if arguments.json:
        cache = {"path": str(cache_root()), "bytes": cache_bytes()}
        write_result({state.target: state.to_dict() for state in states} | {"cache": cache})
    else:
        for state in states:
            known = "available" if state.available else "not available"
            write_line(f"{state.target:<8}  {known}: {state.what}")
        if arguments.target is None:
            write_line(
                f"cache of npu-dry: {cache_root()}, {cache_bytes() / 1e6:.0f} MB; --clear-cache removes it"
            )
    wanted = arguments.target or "cpu"
    return 0 if any(state.target == wanted and state.available for state in states) else 2


DOCTOR = Command(
    "doctor",
    "say for each target whether it is available here, and what to do if not",
    "fusionkit doctor --target npu-dry",
    _configure,
    _doctor,
)
