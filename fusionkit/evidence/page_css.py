"""The style of the pages: light, dark text, wide tables scroll, prints well."""

from __future__ import annotations

_ANSI_COLOURS = (
    # name, readable on white
    ("black", "#24292f"),
    ("red", "#b3261e"),
    ("green", "#1a7f37"),
    ("yellow", "#7d5700"),
    ("blue", "#0550ae"),
    ("magenta", "#8250df"),
    ("cyan", "#0a6c74"),
    ("white", "#57606a"),
)

PAGE_CSS = (
    """\
html { color-scheme: light; }
body { margin: 0; background: #fff; color: #1b1f24;
  font: 16px/1.55 system-ui, "Segoe UI", "Noto Sans", sans-serif; }
main { max-width: 74rem; margin: 0 auto; padding: 1.2rem 1.25rem 4rem; }
nav { font-size: 0.85rem; }
.number { white-space: nowrap; }
h1, h2, h3 { line-height: 1.25; margin: 1.3em 0 0.4em; }
p { margin: 0.5em 0; }
h1 { font-size: 1.7rem; margin-top: 0.3em; }
h2 { font-size: 1.3rem; border-bottom: 1px solid #d8dee4; padding-bottom: 0.2em; }
h3 { font-size: 1.1rem; }
a { color: #0550ae; }
pre, code { font: 0.86rem/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono CJK SC", monospace; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.cell { margin: 0.5rem 0; }
.input_area { border-left: 3px solid #d8dee4; padding: 0.1rem 0 0.1rem 0.6rem; }
.input_area pre { font-size: 0.78rem; color: #57606a; }
.input_area .highlight { background: none; }
details.code summary { font-size: 0.78rem; color: #57606a; cursor: pointer; }
.output_subarea, .rendered_html { overflow-x: auto; }
.output_subarea { padding: 0.35rem 0; }
.output_stderr pre { background: #fff5e5; padding: 0.4rem 0.6rem; }
.output_error pre { background: #fff0ef; padding: 0.4rem 0.6rem; }
.celltag_answer { margin: 1rem 0; padding: 0.2rem 0.9rem; background: #f6f8fa; border: 1px solid #d8dee4;
  border-radius: 6px; }
.celltag_answer p { margin: 0.5rem 0; }
.celltag_answer .badge { font-size: 0.9rem; }
.celltag_answer td .badge { font-size: 0.75rem; }
.celltag_answer table { background: #fff; }
.parameters { display: flex; flex-wrap: wrap; gap: 0.25rem 1.2rem; margin: 0; font-size: 0.85rem; }
.parameters dt, .parameters dd { display: inline; margin: 0; }
.parameters dt, .parameters .unset { color: #57606a; }
.parameters dd { overflow-wrap: anywhere; }
.parameters .changed dd { font-weight: 600; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 0.5rem 0; }
th, td { border: 1px solid #d8dee4; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
thead th { background: #f6f8fa; }
td { font-variant-numeric: tabular-nums; }
[role="region"] { background:
  linear-gradient(to right, #fff 40%, #fff0) left / 2rem 100% no-repeat local,
  linear-gradient(to left, #fff 40%, #fff0) right / 2rem 100% no-repeat local,
  linear-gradient(to right, #0003, #0000) left / 0.6rem 100% no-repeat scroll,
  linear-gradient(to left, #0003, #0000) right / 0.6rem 100% no-repeat scroll; }
.note { color: #57606a; font-size: 0.85rem; font-style: italic; }
img, svg { max-width: 100%; height: auto; }
.highlight :is(.k, .kn, .kc, .kd, .ow) { color: #8c2f00; }
.highlight :is(.s, .s1, .s2, .sa, .sd, .se, .sh, .si, .sb) { color: #0a5a2a; }
.highlight :is(.c, .c1, .cm, .ch, .cs) { color: #57606a; font-style: italic; }
.highlight :is(.m, .mi, .mf, .mh, .mb, .mo) { color: #0550ae; }
.highlight :is(.nb, .bp, .nf, .nc, .nd) { color: #6639ba; }
blockquote { margin: 0.5rem 0; padding-left: 0.9rem; border-left: 3px solid #d8dee4; color: #444c56; }
.index table { width: 100%; }
.index td:nth-child(-n+2) { white-space: nowrap; }
.badge { display: inline-block; padding: 0.05rem 0.55rem; border-radius: 1rem; font-size: 0.8rem;
  font-weight: 600; white-space: nowrap; border: 1px solid #57606a; color: #424a53; background: #f6f8fa; }
.badge.pass { border-color: #1a7f37; color: #116329; background: #e6f6ea; }
.badge.fail, .badge.broken { border-color: #b3261e; color: #8c1d18; background: #fdeceb; }
.badge.inconclusive { border-color: #9a6700; color: #6b4a00; background: #fff6dd; }
summary { cursor: pointer; }
@media (max-width: 60rem) {
  [role="region"] :is(td, th) { font-size: 11px !important; padding: 2px 4px !important; }
  [role="region"] th { white-space: normal !important; }
}
@media print {
  [role="region"] :is(td, th) { font-size: 8pt !important; padding: 1pt 3pt !important; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  .output_subarea, .rendered_html, [role="region"] { overflow: visible !important; }
  tr, img, svg { break-inside: avoid; }
}
"""
    + "\n".join(
        f".ansi-{name}-fg, .ansi-{name}-intense-fg {{ color: {colour}; }}" for name, colour in _ANSI_COLOURS
    )
    + "\n.ansi-bold { font-weight: 600; }\n.ansi-underline { text-decoration: underline; }\n"
)
