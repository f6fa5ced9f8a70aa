"""Prove replacements of real modules of transformers and diffusers, and apply each diff to a copy of its source.

    python benchmarks/prove_replacements.py                  every module of the table below
    python benchmarks/prove_replacements.py --kind RMSNorm   one kind (may be given more than once)
    python benchmarks/prove_replacements.py --json           one JSON object

For each: scan the file, write the replacement, run the original and the replaced code side by side on target cpu
(float32, bfloat16, under autocast, backward where the op has one). Then the diff is applied to a copy of the installed
file in a temporary folder with `git apply`, and the copy is imported in the original's place and its symbol called.
Needs no NPU. Exit code 0: every replacement passes, and its copy runs; what is refused has no replacement.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from fusionkit.identify.proving import Proof, prove
from fusionkit.identify.replacing import Replacement, replace_site
from fusionkit.identify.scan_file import Site, sites_of_file
from fusionkit.identify.source.files import SourceFile
from fusionkit.verdict import Verdict

T, D = "transformers.models.", "diffusers.models."

# kind -> (op, (module, symbol) ...)
SUBJECTS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "RMSNorm": ("npu_rms_norm", (
        (T + "llama.modeling_llama", "LlamaRMSNorm"),
        (T + "qwen3.modeling_qwen3", "Qwen3RMSNorm"),
        (T + "gemma2.modeling_gemma2", "Gemma2RMSNorm._norm"),
        (T + "t5.modeling_t5", "T5LayerNorm"),
        (T + "deepseek_v3.modeling_deepseek_v3", "DeepseekV3RMSNorm"),
        (T + "mamba2.modeling_mamba2", "MambaRMSNormGated"),
        (T + "gpt_oss.modeling_gpt_oss", "GptOssRMSNorm"),
        (T + "llama4.modeling_llama4", "Llama4TextRMSNorm._norm"),
        (T + "olmo2.modeling_olmo2", "Olmo2RMSNorm"),
        (D + "normalization", "MochiRMSNorm"),
    )),
    "SwiGLU": ("npu_swiglu", (
        (T + "llama.modeling_llama", "LlamaMLP"),
        (T + "qwen2.modeling_qwen2", "Qwen2MLP"),
        (T + "mistral.modeling_mistral", "MistralMLP"),
        (T + "phi3.modeling_phi3", "Phi3MLP"),
        (T + "olmo2.modeling_olmo2", "Olmo2MLP"),
        (T + "deepseek_v3.modeling_deepseek_v3", "DeepseekV3MLP"),
        (T + "glm4.modeling_glm4", "Glm4MLP"),
        (D + "activations", "SwiGLU"),
    )),
    "GEGLU": ("npu_geglu", (
        (T + "gemma2.modeling_gemma2", "Gemma2MLP"),
        (T + "gemma.modeling_gemma", "GemmaMLP"),
        (T + "gemma3.modeling_gemma3", "Gemma3MLP"),
    )),
    "RoPE half": ("npu_rotary_mul", (
        (T + "llama.modeling_llama", "apply_rotary_pos_emb"),
        (T + "qwen3.modeling_qwen3", "apply_rotary_pos_emb"),
        (T + "mistral.modeling_mistral", "apply_rotary_pos_emb"),
        (T + "phi3.modeling_phi3", "apply_rotary_pos_emb"),
        (T + "gpt_neox.modeling_gpt_neox", "apply_rotary_pos_emb"),
        (T + "gemma2.modeling_gemma2", "apply_rotary_pos_emb"),
        (T + "gpt_oss.modeling_gpt_oss", "_apply_rotary_emb"),
        (T + "dia.modeling_dia", "apply_rotary_pos_emb"),
        (T + "qwen2_vl.modeling_qwen2_vl", "apply_rotary_pos_emb_vision"),
    )),
    "RoPE interleaved": ("npu_rotary_mul", (
        (T + "cohere.modeling_cohere", "apply_rotary_pos_emb"),
        (T + "glm4.modeling_glm4", "apply_rotary_pos_emb"),
        (T + "ernie4_5.modeling_ernie4_5", "apply_rotary_pos_emb"),
        (T + "llama4.modeling_llama4", "apply_rotary_emb"),
        (T + "deepseek_v3.modeling_deepseek_v3", "apply_rotary_pos_emb_interleave"),
        (D + "embeddings", "apply_rotary_emb"),
        (D + "transformers.transformer_wan", "WanAttnProcessor"),
        (D + "transformers.transformer_ltx", "apply_rotary_emb"),
    )),
    "eager attention": ("npu_fusion_attention", (
        (T + "llama.modeling_llama", "eager_attention_forward"),
        (T + "qwen3.modeling_qwen3", "eager_attention_forward"),
        (T + "mistral.modeling_mistral", "eager_attention_forward"),
        (T + "bert.modeling_bert", "eager_attention_forward"),
        (T + "siglip.modeling_siglip", "eager_attention_forward"),
        (T + "whisper.modeling_whisper", "eager_attention_forward"),
        (T + "phi3.modeling_phi3", "eager_attention_forward"),
    )),
    "SDPA attention": ("npu_fusion_attention", (
        (T + "aimv2.modeling_aimv2", "Aimv2AttentionPoolingHead"),
        (D + "attention_processor", "AttnProcessor2_0"),
        (D + "transformers.transformer_easyanimate", "EasyAnimateAttnProcessor2_0"),
        (D + "attention_processor", "JointAttnProcessor2_0"),
        (D + "transformers.transformer_flux", "FluxAttnProcessor"),
        (D + "transformers.transformer_wan", "WanAttnProcessor"),
        (D + "transformers.transformer_ltx", "LTXVideoAttnProcessor"),
        (D + "transformers.transformer_anyflow_far", "AnyFlowCrossAttnProcessor"),
    )),
    "MoE loop": ("npu_grouped_matmul", (
        (T + "mixtral.modeling_mixtral", "MixtralExperts"),
        (T + "qwen3_moe.modeling_qwen3_moe", "Qwen3MoeExperts"),
        (T + "deepseek_v3.modeling_deepseek_v3", "DeepseekV3Experts"),
        (T + "olmoe.modeling_olmoe", "OlmoeExperts"),
        (T + "glm4_moe.modeling_glm4_moe", "Glm4MoeExperts"),
        (T + "qwen2_moe.modeling_qwen2_moe", "Qwen2MoeExperts"),
        (T + "minimax.modeling_minimax", "MiniMaxExperts"),
    )),
    "added RMSNorm": ("npu_add_rms_norm", (
        (T + "llama.modeling_llama", "LlamaDecoderLayer"),
        (T + "qwen3.modeling_qwen3", "Qwen3DecoderLayer"),
        (T + "mistral.modeling_mistral", "MistralDecoderLayer"),
        (T + "deepseek_v3.modeling_deepseek_v3", "DeepseekV3DecoderLayer"),
    )),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=list(SUBJECTS))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--jobs", type=int, default=2, help="proofs at a time")
    parser.add_argument("--check-copies", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.check_copies:
        return check_copies(arguments.check_copies)
    started = time.monotonic()
    wanted = [
        (kind, op, module, symbol)
        for kind, (op, subjects) in SUBJECTS.items()
        if arguments.kind is None or kind in arguments.kind
        for module, symbol in subjects
    ]
    rows = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda item: prove_one(*item, Path(name)), wanted):
            rows.append(row)
            if not arguments.json:
                print(line(row), flush=True)
        add_copies(rows, Path(name))
    seconds = time.monotonic() - started
    if arguments.json:
        told = [{k: v for k, v in row.items() if k not in ("copy", "site")} for row in rows]
        print(json.dumps({"rows": told, "sums": sums(rows), "seconds": round(seconds, 1)}, indent=1))
    else:
        print_sums(rows, seconds)
    return (
        0
        if all(row["verdict"] == "REFUSED" or (row["verdict"] == "PASS" and row["copied"]) for row in rows)
        else 1
    )


def prove_one(kind: str, op: str, module: str, symbol: str, folder: Path) -> dict:
    """One row of the table: the proof's verdict, and the patched copy that is checked afterwards."""
    row = {
        "kind": kind,
        "op": op,
        "module": module,
        "symbol": symbol,
        "copied": False,
        "copy": None,
        "site": None,
    }
    package = module.partition(".")[0]
    spec = importlib.util.find_spec(package)
    root = Path(spec.submodule_search_locations[0]).parent
    path = root.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return row | {"verdict": "ABSENT", "reason": f"{package} has no {module}", "seconds": 0.0}
    file = SourceFile(path, path.read_text("utf-8"))
    site = next((s for s in sites_of_file(file) if (s.symbol, s.op) == (symbol, op)), None)
    if site is None:
        return row | {"verdict": "NO SITE", "reason": f"no {op} at {symbol}", "seconds": 0.0}
    replacement = replace_site(file, site, root)
    if not isinstance(replacement, Replacement):
        return row | {"verdict": "REFUSED", "reason": replacement.reason, "seconds": 0.0}
    proof = prove(path, site, replacement.new_text)
    copy = folder / f"{module}-{symbol}-{op}"
    problem = apply_diff(path, root, replacement, copy)
    target = copy / path.relative_to(root)
    return row | {
        "verdict": "FAIL" if problem else str(proof.verdict), "reason": problem or proof.reason, "seconds": proof.seconds,
        "runs": len(proof.runs), "passing": sum(run.verdict is Verdict.PASS for run in proof.runs),
        "backward": any(run.training for run in proof.runs), "forced": list(proof.forced), "worst": worst(proof),
        "copy": None if problem else str(target), "site": asdict(site),
    }  # fmt: skip


def worst(proof: Proof) -> dict | None:
    run = proof.worst
    if run is None or run.figures is None:
        return None
    return asdict(run.figures) | {"dtype": run.dtype, "autocast": run.autocast, "case": run.case}


def apply_diff(path: Path, root: Path, replacement: Replacement, folder: Path) -> str:
    """Apply the diff to a copy of the installed file; what went wrong, or ""."""
    target = folder / path.relative_to(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())
    command = ["git", "apply", "-p1", "-"]
    done = subprocess.run(command, input=replacement.patch.data, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        return f"the diff does not apply: {done.stderr.decode().strip().splitlines()[0]}"
    same = target.read_text("utf-8") == replacement.new_text
    return "" if same else "the diff applied gives another text than the replacement's"


def add_copies(rows: list[dict], folder: Path) -> None:
    """Import and call every patched copy, in another process; `copied` tells which do."""
    checked = [row for row in rows if row["copy"]]
    if not checked:
        return
    request = folder / "copies.json"
    request.write_text(json.dumps([{k: row[k] for k in ("module", "copy", "site")} for row in checked]))
    command = [sys.executable, __file__, "--check-copies", str(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = request.with_suffix(".results")
    told = json.loads(results.read_text()) if results.is_file() else []
    for row, problem in zip(checked, told, strict=False):
        row["copied"] = not problem
        row["copy_problem"] = problem
    for row in checked[len(told) :]:
        row["copy_problem"] = f"the process ended: {(done.stderr.strip().splitlines() or [''])[-1]}"


def check_copies(request: Path) -> int:
    """Import each patched copy under the name of the module it is a copy of, and call its symbol."""
    import importlib

    from fusionkit.errors import USER_CODE_ERRORS
    from fusionkit.identify.proving.planning import plan

    told = []
    for item in json.loads(request.read_text()):
        site = Site(**{k: tuple(v) if isinstance(v, list) else v for k, v in item["site"].items()})
        path = Path(item["copy"])
        try:
            importlib.import_module(item["module"].rpartition(".")[0])
            spec = importlib.util.spec_from_file_location(item["module"], path)
            module = importlib.util.module_from_spec(spec)
            before = sys.modules.get(item["module"])
            sys.modules[item["module"]] = module
            spec.loader.exec_module(module)
            called = plan(site, module, SourceFile(path, path.read_text("utf-8")), 0)
            told.append("" if called else "nothing was called")
        except USER_CODE_ERRORS as error:
            told.append(f"{type(error).__name__}: {error}".splitlines()[0])
        finally:
            if before is not None:
                sys.modules[item["module"]] = before
            else:
                sys.modules.pop(item["module"], None)
    request.with_suffix(".results").write_text(json.dumps(told))
    return 0


def line(row: dict) -> str:
    figure = ""
    if row.get("worst") and row["worst"]["max_ulps"] is not None:
        figure = f"{row['worst']['max_ulps']:.3g} of {row['worst']['max_limit_ulps']:.3g} ulp"
    name = f"{row['module'].rpartition('.')[2]}.{row['symbol']}"
    runs = f"{row['passing']}/{row['runs']}" if "runs" in row else "-"
    told = "" if row["verdict"] == "PASS" else f"  {row['reason'][:150]}"
    return f"{row['kind']:<17} {name:<62} {row['verdict']:<12} {runs:>7} {figure:<28} {row['seconds']:6.1f} s{told}"


def sums(rows: list[dict]) -> dict:
    kinds = {}
    for kind in SUBJECTS:
        of_kind = [row for row in rows if row["kind"] == kind]
        if of_kind:
            counts = Counter(row["verdict"] for row in of_kind)
            kinds[kind] = dict(counts) | {
                "modules": len(of_kind),
                "copies": sum(row["copied"] for row in of_kind),
            }
    passing = [row for row in rows if row["verdict"] == "PASS"]
    return {
        "kinds": kinds, "modules": len(rows), "pass": len(passing), "copies": sum(row["copied"] for row in rows),
        "models": len({row["module"] for row in passing}), "backward": sum(row["backward"] for row in passing),
    }  # fmt: skip


def print_sums(rows: list[dict], seconds: float) -> None:
    print()
    told = sums(rows)
    for kind, counts in told["kinds"].items():
        print(f"{kind:<17} " + ", ".join(f"{name} {number}" for name, number in counts.items()))
    for row in rows:
        if row.get("copy_problem"):
            print(f"copy of {row['module']} ({row['symbol']}): {row['copy_problem'][:160]}")
    print(
        f"{told['pass']} of {told['modules']} modules pass ({told['models']} files, {told['backward']} with backward);"
        f" {told['copies']} patched copies import and run; {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
