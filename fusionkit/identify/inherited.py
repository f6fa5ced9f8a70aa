"""Classes that inherit code which a fused op could take the place of, from files that are not scanned themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from fusionkit.identify.scan_file import Site, sites_of_class
from fusionkit.identify.source.files import SourceClass, SourceFile
from fusionkit.identify.source.project import lineage

_RUN_AS_CLASS = ("forward", "__call__")


def inherited_sites(file: SourceFile) -> Iterator[tuple[Site, SourceClass]]:
    """(site of the base as one of the class, the base) for each class that inherits its forward from another file."""
    for cls in file.every_class:
        base = None if _runs(cls) else next((item for item in lineage(cls) if _runs(item)), None)
        if base is None or base.file is file:
            continue
        for site in sites_of_class(base):
            if site.symbol.partition(".")[2] not in cls.methods:
                yield _of_child(site, cls), base


def _runs(cls: SourceClass) -> bool:
    """Whether the class has a forward of its own."""
    return any(name in cls.methods for name in _RUN_AS_CLASS)


def _of_child(site: Site, cls: SourceClass) -> Site:
    method = site.symbol.partition(".")[2]
    end = cls.node.end_lineno or cls.node.lineno
    symbol = f"{cls.name}.{method}" if method else cls.name
    return dataclasses.replace(site, symbol=symbol, line=cls.node.lineno, end_line=end)
