"""0 hits, or no row at all for the pattern: its flag is off in the config of this compile.

Set the flag in config.FusionPatterns.
"""

from __future__ import annotations

from fusionkit import explain, load_subject, use_target
from fusionkit.config import CompilationConfig, FusionPatterns

use_target("cpu")
config = CompilationConfig(fusion_patterns=FusionPatterns(enable_rms_norm=False))
(report,) = explain(load_subject("small_models:norm"), "rms_norm", config=config)
for site in report.missed:
    for cause in site.causes:
        print(f"{site.module}: {cause.type}: pattern has {cause.expected}, graph has {cause.actual}")
