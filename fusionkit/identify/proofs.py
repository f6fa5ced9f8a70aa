"""A proof beside every candidate that a replacement can be written for; what a proof refuses is not recommended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fusionkit.forking import ForkServer
from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.proving.proof import Proof
from fusionkit.identify.proving.traffic import Traffic
from fusionkit.identify.reading import UnreadableError, read_source
from fusionkit.identify.reporting.phrases import in_chinese
from fusionkit.verdict import Verdict

LESS_TRAFFIC = (
    "npu_rms_norm", "npu_add_rms_norm", "npu_swiglu", "npu_geglu", "npu_rotary_mul", "npu_scaled_masked_softmax",
)  # fmt: skip
"""Ops that pay by moving fewer bytes, and by nothing else."""

_LONGEST = 160  # characters of a proof's reason that become the candidate's; the proof holds them all


def with_proofs(
    scan: ScanReport,
    *,
    time_limit_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ScanReport:
    """The scan with a proof for each candidate that is not refused already: this runs the scanned code.

    One process for each file, at most `time_limit_s` for each candidate. A candidate without a replacement has a proof
    that is INCONCLUSIVE with the reason.
    """
    from fusionkit.identify.proving.prove import TIME_LIMIT_S, proof_server

    proofs: dict[str, Proof] = {}
    limit_s = TIME_LIMIT_S if time_limit_s is None else time_limit_s
    files = list(dict.fromkeys(item.file for item in scan.candidates if item.recommend != "no"))
    with proof_server() as server:
        for number, name in enumerate(files, 1):
            tell(f"proving {name}, file {number} of {len(files)}")
            inside = [item for item in scan.candidates if item.file == name and item.recommend != "no"]
            proofs |= _prove_inside(scan.path(name), inside, Path(scan.root), limit_s, server)
    return replace(scan, candidates=tuple(with_proof(item, proofs.get(item.id)) for item in scan.candidates))


def with_proof(candidate: Candidate, proof: Proof | None) -> Candidate:
    """The candidate with its proof; a replacement that fails it is not recommended."""
    if proof is None:
        return candidate
    told = proof.to_dict() | {"file": candidate.file}
    if proof.verdict is not Verdict.FAIL:
        return weighed(replace(candidate, proof=told), proof.traffic)
    return replace(
        candidate,
        proof=told,
        recommend="no",
        priority=3,
        reason=f"the proof refuses the replacement: {_shortened(proof.reason)}",
        reason_zh=f"验证不通过：{_shortened(in_chinese(proof.reason))}",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + " ..."


def weighed(candidate: Candidate, traffic: tuple[Traffic, ...]) -> Candidate:
    """The candidate by what its proof counted: deferred where nothing is saved, later where forward saves nothing."""
    if candidate.recommend != "yes" or not traffic:
        return candidate
    forward = traffic[0]
    if candidate.op == "npu_fusion_attention" and forward.replaced.calls >= forward.original.calls:
        told = f"({forward.original.calls} -> {forward.replaced.calls})"
        return replace(
            candidate,
            recommend="defer",
            priority=3,
            reason=f"as written it saves no op call {told}: the scores are computed all the same",
            reason_zh=f"按此写法不减少算子调用 {told}：分数照样要算",
        )
    if candidate.op not in LESS_TRAFFIC or forward.saves:
        return candidate
    factor = forward.replaced.bytes / max(forward.original.bytes, 1)
    ops = ", ".join(name for name, _ in forward.replaced.ops)
    if any(item.saves for item in traffic):
        return replace(
            candidate,
            priority=max(candidate.priority, 2),
            reason=f"pays in training: forward alone, {ops} move {factor:.2f} times the bytes of the original",
            reason_zh=f"收益在训练：仅前向时 {ops} 的读写量是原代码的 {factor:.2f} 倍",
        )
    return replace(
        candidate,
        recommend="defer",
        priority=3,
        reason=f"as written it saves nothing: {ops} move {factor:.2f} times the bytes of the original",
        reason_zh=f"按此写法没有收益：{ops} 的读写量是原代码的 {factor:.2f} 倍",
    )


def _prove_inside(
    path: Path, candidates: list[Candidate], root: Path, time_limit_s: float, server: ForkServer
) -> dict[str, Proof]:
    """Proofs of the candidates of one file, by id."""
    from fusionkit.identify.proving.prove import prove_file
    from fusionkit.identify.replacing import Refused, replace_site

    try:
        file = read_source(path)
    except UnreadableError as error:
        return {item.id: _unproved(item, str(error)) for item in candidates}
    proofs: dict[str, Proof] = {}
    written: list[tuple[Candidate, str]] = []
    for item in candidates:
        found = replace_site(file, item.site, root)
        if isinstance(found, Refused):
            proofs[item.id] = _unproved(item, f"no replacement: {found.reason}")
        else:
            written.append((item, found.new_text))
    if written:
        texts = [(item.site, text) for item, text in written]
        done = prove_file(path, texts, time_limit_s=time_limit_s, server=server)
        proofs |= {item.id: proof for (item, _), proof in zip(written, done, strict=True)}
    return proofs


def _unproved(candidate: Candidate, why: str) -> Proof:
    return Proof(candidate.op, candidate.file, candidate.symbol, Verdict.INCONCLUSIVE, why)
