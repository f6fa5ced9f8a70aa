"""The table of lint rules for pattern files, with findings and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fusionkit.encoding import Result

SCHEMA = "fusionkit.lint/1"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `source`: the rule's origin. `severity`: "error" (misses, breaks, or is forbidden) or "warning"."""

    name: str
    what: str
    way_out: str
    source: str
    severity: str = "error"


_MATCHER = "torch/_inductor/pattern_matcher.py"
_MINDIE = "MindIE-SD, compilation-dev"

RULES: tuple[Rule, ...] = (
    Rule(
        "out_argument",
        "a call has a keyword argument named out, which makes its node a mutation for the matcher",
        "use the functional form and return its result",
        "pytorch issue 137229",
    ),
    Rule(
        "returns_nothing",
        "a search or replacement function returns no tensor, so that nothing is matched",
        "return the tensor that the chain ends in",
        "pytorch issue 149879",
    ),
    Rule(
        "mutating_search",
        "a search function writes into its argument; the trace loses the write",
        "write it without in-place ops",
        "pytorch issue 149879",
    ),
    Rule(
        "unused_argument",
        "an argument of pattern() is not used in its trace; the matcher raises at the first match",
        "remove it from inputs, pattern and replacement",
        f"{_MATCHER}, register_replacement: check_fn",
    ),
    Rule(
        "equal_scalars",
        "two stand-ins of scalars() are equal, or one equals another literal of the trace (True equals 1)",
        "give each a value that stands nowhere else, such as 0.01171875",
        f"{_MATCHER}, fx_to_pattern: scalar_workaround",
    ),
    Rule(
        "unrepresentable_literal",
        "a literal is another number once the op holds it in its dtype; graphs have the rounded one",
        "write the literal as it stands in the graph",
        "torch 2.13: the trace of torch.nn.RMSNorm has add.Scalar(float32(eps))",
    ),
    Rule(
        "closure_tensor",
        "the pattern holds a tensor of its own: get_attr in its trace, which no node of a model equals",
        "make it an argument of pattern and replacement, or a number",
        f"{_MINDIE} mismatch-catalog, parameter source",
    ),
    Rule(
        "no_fake_kernel",
        "a custom op has no fake kernel, so that a graph that holds it cannot be traced",
        "register one with torch.library.register_fake",
        "docs.pytorch.org torch.library.register_fake",
    ),
    Rule(
        "unannotated_mutation",
        "a custom op writes into an argument that its schema does not mark",
        "declare mutates_args, or Tensor(a!) in the schema",
        "docs.pytorch.org torch.library.opcheck, test_schema",
    ),
    Rule(
        "names",
        "file, class, group, flag and op do not derive from one name",
        "{name}_pattern.py, ...{Name}Pattern, {Name}PatternGroup, enable_{name}, op {name}",
        f"{_MINDIE} registration-checklist",
    ),
    Rule(
        "switch_outside_config",
        "the file reads an environment variable or command-line argument; a fusion is switched by its flag alone",
        "use the flag enable_{name} in FusionPatterns",
        f"{_MINDIE} fusion-enablement-notes",
    ),
    Rule(
        "unconfirmed_default_off",
        "a flag is off by default, and no comment records who confirmed that",
        "switch it on, or say above it: # default off, confirmed by ... on ...: reason",
        f"{_MINDIE} fusion-enablement-notes",
    ),
    Rule(
        "hand_traversal",
        "the file walks over a graph's nodes and rewrites them by hand",
        "use a pattern class, or a GraphPatternEntry that torch's matcher drives",
        f"{_MINDIE} graph-pattern-rewrite-guide",
    ),
    Rule(
        "entry_keywords",
        "a hand-written CallFunction lists keyword arguments, which fail to match where a node has others",
        "list positional arguments only; read the node's kwargs in the handler",
        f"{_MINDIE} graph-pattern-rewrite-guide",
        severity="warning",
    ),
    Rule(
        "omitted_keyword",
        "a call leaves a keyword at its default, for which torch's matcher takes any value (gelu(x) matches"
        ' approximate="tanh", x + y matches alpha=0.5); the kit refuses such a match (kwargs_structure)',
        "for a backend that does not, compare the node's kwargs in a static method extra_check(match)",
        f"{_MATCHER}, _TargetArgsExpr._match",
        severity="warning",
    ),
    Rule(
        "duplicate",
        "two variants of a group have equal patterns, so that the later one is never used (a warning where their"
        " replacements are equal too)",
        "remove one of them, or make their patterns differ",
        f"{_MATCHER}, register_replacement: skip_duplicates",
    ),
    Rule(
        "not_registrable",
        "the pattern cannot be traced and registered",
        "mend it as the message says",
        f"{_MATCHER}, register_replacement",
    ),
)

RULE_NAMES: dict[str, Rule] = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Finding(Result):
    """One place that breaks a rule. `line`: from 1; 0 if unknown. `what`: description of this place."""

    rule: str
    line: int
    what: str
    way_out: str
    severity: str


def finding(
    rule: str, line: int, what: str, way_out: str | None = None, severity: str | None = None
) -> Finding:
    """A finding of the rule named `rule`; way out and severity default to the rule's."""
    row = RULE_NAMES[rule]
    return Finding(rule, line, what, way_out or row.way_out, severity or row.severity)


@dataclass(frozen=True, slots=True)
class LintReport(Result, schema=SCHEMA, keys={"path": "file"}):
    """All findings of one file, by line."""

    path: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(item for item in self.findings if item.severity == "error")

    def to_dict(self) -> dict[str, Any]:
        """The lint JSON."""
        return Result.to_dict(self) | {"errors": len(self.errors)}
