"""fusionkit api: look up torch_npu's API in the wheel's own documentation and schemas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.errors import MisuseError

if TYPE_CHECKING:
    from fusionkit.npu.op_docs.entry import ApiEntry
    from fusionkit.npu.op_docs.index import ApiIndex

_NO_WHEEL = "no torch_npu wheel or installation here: `fusionkit doctor --target npu-dry` fetches one, --wheel names one"

# Headings of `show` for parts that are not sections of the documentation.
_WORDS = {
    "en": {
        "read": "read in",
        "replaces": "replaces the earlier entry",
        "schema": "Schema",
        "notes": "Notes of fusionkit on the documentation",
        "rules": "Rules that target cpu enforces",
        "not_found": "Not found",
        "online": "Online document",
        "wheel": "a torch_npu wheel or installation (`fusionkit doctor --target npu-dry` fetches one)",
        "documentation": "documentation in the wheel",
    },
    "zh": {
        "read": "读自",
        "replaces": "覆盖较早的条目",
        "schema": "Schema",
        "notes": "fusionkit 对文档的注记",
        "rules": "cpu 目标执行的约束",
        "not_found": "未找到",
        "online": "在线文档",
        "wheel": "torch_npu 的 wheel 或安装（`fusionkit doctor --target npu-dry` 可获取）",
        "documentation": "wheel 中的文档",
    },
}


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|search|show")
    listing = actions.add_parser("list", help="every name, with one line on each")
    listing.add_argument("--prefix", default="", help="only names that start so, such as npu_moe_")
    search = actions.add_parser("search", help="names and texts that hold all the words, the best first")
    search.add_argument("words", nargs="+", metavar="WORD", help="in any case; Chinese words are found, too")
    search.add_argument("--limit", type=int, default=20, metavar="N", help="how many (default 20)")
    show = actions.add_parser("show", help="all there is on one name")
    show.add_argument("name", metavar="NAME", help="npu_rms_norm, torch_npu.npu_rms_norm, NpuFusedAdamW, ...")
    show.add_argument("--lang", choices=("en", "zh"), default="en", help="of headings and notes (default en)")
    show.add_argument("--examples", action="store_true", help="the examples of the documentation as well")
    for action in (listing, search, show):
        action.add_argument(
            "--wheel", type=Path, metavar="PATH", help="a torch-npu .whl, or the folder of an unpacked one"
        )
        action.add_argument("--json", action="store_true", help="print the result as JSON")


def _api(arguments: argparse.Namespace) -> int:
    {"list": _list, "search": _search, "show": _show}[arguments.action](arguments)
    return 0


def _list(arguments: argparse.Namespace) -> None:
    from fusionkit.npu.op_docs.lookup import find_index, list_names

    index = find_index(arguments.wheel)
    names = list_names(index, arguments.prefix)
    if arguments.json:
        write_result(
            {"schema": "fusionkit.api-list/1", **_package(index), "names": [name.to_dict() for name in names]}
        )
        return
    width = max((len(name.name) for name in names), default=0)
    for name in names:
        write_line(f"{name.name:<{width}}  {name.summary[:80]}".rstrip())
    write_line(f"{len(names)} names, {sum(name.documented for name in names)} documented; {_origin(index)}")


def _search(arguments: argparse.Namespace) -> None:
    from fusionkit.npu.op_docs.lookup import find_index
    from fusionkit.npu.op_docs.search import search_api

    if arguments.limit < 1:
        raise MisuseError(f"--limit {arguments.limit}: give 1 or more")
    index = find_index(arguments.wheel)
    hits = search_api(index, arguments.words)
    shown = hits[: arguments.limit]
    if arguments.json:
        counts = {"count": len(hits), "hits": [hit.to_dict() for hit in shown]}
        write_result(
            {"schema": "fusionkit.api-search/1", "words": arguments.words, **_package(index), **counts}
        )
        return
    for hit in shown:
        write_line(f"{hit.name}\n    {hit.excerpt}")
    more = f", {len(shown)} shown" if len(shown) < len(hits) else ""
    write_line(f"{len(hits)} names hold {' '.join(arguments.words)}{more}; {_origin(index)}")


def _show(arguments: argparse.Namespace) -> None:
    from fusionkit.npu.op_docs.lookup import lookup
    from fusionkit.npu.op_docs.sections import HEADINGS

    entry = lookup(arguments.name, wheel=arguments.wheel)
    if arguments.json:
        write_result(entry.to_dict())
        return
    words = _WORDS[arguments.lang]
    _write_head(entry, words)
    _write_kit(entry, words, arguments.lang)
    for section in entry.sections:
        if section.kind != "examples" or arguments.examples:
            _write_part(HEADINGS[section.kind][arguments.lang], section.text)
    missing = [words.get(what) or HEADINGS[what][arguments.lang] for what in entry.not_found]
    if missing:
        write_line(f"{words['not_found']}: {', '.join(missing)}")
    write_line(f"{words['online']}: {entry.online}")


def _write_head(entry: ApiEntry, words: dict[str, str]) -> None:
    write_line(entry.call)
    if entry.where:
        write_line(f"  {words['read']} torch_npu {entry.version}, {entry.where}")
    for where in entry.superseded:
        write_line(f"  {words['replaces']} {where}")
    if entry.signature:
        write_line(f"  {entry.signature}")
    schemas = [(schema.text, ", ".join(schema.where)) for schema in entry.schemas]
    if not schemas and entry.kit:
        schemas = [(text, "fusionkit") for text in entry.kit.schemas]
    if schemas:
        _write_part(words["schema"], "\n".join(f"{text}\n    {where}" for text, where in schemas))


def _write_kit(entry: ApiEntry, words: dict[str, str], lang: str) -> None:
    notes = "\n".join(f"- {note.text(lang)} ({note.source})" for note in entry.notes)
    rules = "\n".join(f"- {r.argument} {r.rule} ({r.source})" for r in (entry.kit.rules if entry.kit else ()))
    _write_part(words["notes"], notes)
    _write_part(words["rules"], rules)


def _write_part(heading: str, text: str) -> None:
    """A heading and its lines, indented; nothing for no text."""
    if text:
        write_line("\n".join((heading, *(f"  {line}".rstrip() for line in text.split("\n")))))


def _package(index: ApiIndex | None) -> dict[str, str]:
    return {"package": str(index.path) if index else "", "version": index.version if index else ""}


def _origin(index: ApiIndex | None) -> str:
    from fusionkit.npu.op_docs.online import online_folder

    return (
        f"torch_npu {index.version}, {index.path}"
        if index
        else f"{_NO_WHEEL}; documents: {online_folder('')}"
    )


API = Command(
    "api",
    "look up torch_npu's API: schemas, parameters, constraints, and where the documentation is wrong",
    "fusionkit api show npu_rotary_mul",
    _configure,
    _api,
)
