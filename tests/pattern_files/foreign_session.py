"""Script: files of MindIE-SD's form on target npu-dry; the argument is a folder to write them into."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from dry_processes import activate_dry, answer, outcome
from foreign_files import FILES, write_foreign

from fusionkit.cli import main

activate_dry()
folder = Path(sys.argv[1])


def loaded(what):
    from fusionkit.passes.trial import trial_groups

    return list(trial_groups(write_foreign(folder, what)))


def said(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*words, "--target", "npu-dry", "--json"])
    return code, json.loads(out.getvalue())


npu_cast, aten_cast = (str(write_foreign(folder, what)) for what in ("npu cast", "aten cast"))
explained = said("explain", "flux", "--pattern", npu_cast)
answer(
    {
        "loaded": {what: outcome(lambda what=what: loaded(what), json.dumps) for what in FILES},
        "explain": [explained[0], explained[1]["sites"]],
        "probe": said("probe", "flux", "--pattern", aten_cast, "--backend", "aot_eager"),
        "lint": said("lint", aten_cast)[0],
    }
)
