"""0 hits with a file that hits in every trial: the compile does not load it, or the class is not in the file's list.

Name the file in the config's `pattern_files`, or put the class into the `...PatternGroup` list.
"""

from __future__ import annotations

from pathlib import Path

from fusionkit import explain, load_subject, use_target
from fusionkit.config import CompilationConfig

use_target("cpu")
config = CompilationConfig(pattern_files=())
(report,) = explain(load_subject("small_models:norm"), Path("right_pattern.py"), config=config)
for site in report.missed:
    for cause in site.causes:
        print(f"{site.module}: {cause.type}: pattern has {cause.expected}, graph has {cause.actual}")
