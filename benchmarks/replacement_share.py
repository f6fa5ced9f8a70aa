"""Over installed model files: the share of the sites that get a replacement, per op, and why the others get none.

    python benchmarks/replacement_share.py [--every N] [--op OP ...] [--reasons]

Each replacement is held against its original: the new text parses, and without the added branches and imports it is the
same program. Anything that raises ends the run.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import time
from collections import Counter
from pathlib import Path

from fusionkit.identify.ops import OP_NAMES
from fusionkit.identify.replacing import Refused, replace_site
from fusionkit.identify.scan_file import sites_of_file
from fusionkit.identify.source.files import SourceFile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="read every Nth file only")
    parser.add_argument("--op", action="append", choices=OP_NAMES, help="these ops only")
    parser.add_argument("--reasons", action="store_true", help="print why sites get none")
    arguments = parser.parse_args()
    written, found, reasons = Counter(), Counter(), Counter()
    start = time.perf_counter()
    for path in model_files()[:: arguments.every]:
        file = SourceFile(path, path.read_text("utf-8"))
        for site in sites_of_file(file):
            if arguments.op and site.op not in arguments.op:
                continue
            found[site.op] += 1
            result = replace_site(file, site)
            if isinstance(result, Refused):
                reasons[site.op, result.reason] += 1
            else:
                hold(file, result.new_text)
                written[site.op] += 1
    print(f"{'op':28}{'sites':>7}{'written':>9}{'share':>8}")
    for op in (op for op in OP_NAMES if found[op]):
        print(f"{op:28}{found[op]:7}{written[op]:9}{written[op] / found[op]:8.3f}")
    print(f"{'all':28}{found.total():7}{written.total():9}{written.total() / max(found.total(), 1):8.3f}")
    for (op, reason), count in reasons.most_common() if arguments.reasons else ():
        print(f"{count:5}  {op}: {reason}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


def model_files() -> list[Path]:
    found = []
    for package, pattern in (("transformers", "modeling_*.py"), ("diffusers", "*.py")):
        folder = Path(importlib.util.find_spec(package).origin).parent / "models"
        found += sorted(folder.rglob(pattern))
    return found


def hold(file: SourceFile, new_text: str) -> None:
    """Every statement of the original stands in the new text as often as before, at least."""
    before = Counter(
        ast.dump(node) for node in ast.walk(file.tree) if isinstance(node, ast.stmt) and not held(node)
    )
    after = Counter(
        ast.dump(node)
        for node in ast.walk(ast.parse(new_text))
        if isinstance(node, ast.stmt) and not held(node)
    )
    missing = before - after
    if missing:
        raise SystemExit(f"{file.path}: {len(missing)} statements of the original are not in the new text")


def held(node: ast.AST) -> bool:
    return bool(getattr(node, "body", None))


if __name__ == "__main__":
    raise SystemExit(main())
