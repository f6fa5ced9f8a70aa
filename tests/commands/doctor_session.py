"""Script: `fusionkit doctor` again and again in one process, each time in another environment.

The argument: a JSON list of arguments and variables (null unsets one). No target may become available on the way.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys

from dry_processes import answer

from fusionkit.cli import main

seen = []
before = dict(os.environ)
for words, variables in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(before | {name: value for name, value in variables.items() if value is not None})
    for name in [name for name, value in variables.items() if value is None]:
        os.environ.pop(name, None)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["doctor", *words])
    seen.append([code, out.getvalue(), err.getvalue()])
answer(seen)
