"""The words of the report in English and Chinese: one literal table, and the hazards once more in Chinese."""

from __future__ import annotations

from typing import Literal

from fusionkit.identify.ops import HAZARDS, fused_op

Lang = Literal["en", "zh"]
LANGS: tuple[Lang, ...] = ("zh", "en")

# Key -> (English, Chinese); {} are filled in.
WORDS: dict[str, tuple[str, str]] = {
    "title": ("Fused-op identification report", "融合算子识别报告"),
    "scanned": ("Scanned", "扫描对象"),
    "files": ("Python files read", "读取的 Python 文件数"),
    "found": ("Candidates", "候选数"),
    "profile": ("Profile", "Profile"),
    "none": ("None", "无"),
    "not_given": ("not given", "未提供"),
    "stage": (
        "Stage one: nothing was changed. Stage two begins with a confirmation of this very text.",
        "阶段一：未修改任何代码。阶段二须先对本报告原文作出确认。",
    ),
    "summary": ("Summary", "汇总"),
    "op": ("Op", "融合算子"),
    "code": ("Written as", "手写形式"),
    "verdict": ("Judgement", "结论"),
    "count": ("Recommended / deferred / not recommended", "推荐 / 暂缓 / 不推荐"),
    "reason": ("Reason", "一句话理由"),
    "yes": ("recommended", "推荐"),
    "defer": ("deferred", "暂缓"),
    "no": ("not recommended", "不推荐"),
    "not_found": ("no such code in the files that were read", "所读文件中没有这种代码"),
    "candidates": ("Candidates", "逐个候选分析"),
    "priority": ("Priority", "优先级"),
    "priority_1": ("high", "高"),
    "priority_2": ("medium", "中"),
    "priority_3": ("low", "低"),
    "where": ("Where", "位置"),
    "lines": ("lines", "行"),
    "modular": (
        "generated from {source}: change it there, the generated file is what runs",
        "由 {source} 生成：应改该文件，实际运行的是生成后的文件",
    ),
    "inherited": ("the code is inherited from {source}", "代码继承自 {source}"),
    "alike": ("The same code stands elsewhere too ({count})", "另有 {count} 处代码相同"),
    "own_diffs": (
        "This is the diff of {place}. Each of the {count} other places has a diff of its own, in its file:"
        " fusionkit scan with --diffs DIR or --json",
        "以上为 {place} 的 diff；其余 {count} 处各有自己文件的 diff：fusionkit scan 加 --diffs DIR 或 --json",
    ),
    "own_proofs": (
        "The runs are those of {place}. Each of the {count} other places was proved by itself, with the same verdict:"
        " fusionkit scan --prove --json",
        "以上用例属于 {place}；其余 {count} 处各自单独验证，结论相同：fusionkit scan --prove --json",
    ),
    "more": ("{count} more, see the list of candidates", "其余 {count} 处见候选清单"),
    "dispatch": ("Who runs", "实际执行者"),
    "original": ("Original code", "原始代码"),
    "excerpt": ("lines {start} to {end} of {file}", "{file} 第 {start} 至 {end} 行"),
    "unread": ("the file cannot be read any more: {why}", "文件已无法读取：{why}"),
    "changed": (
        "the file has changed since the scan: scan it again",
        "文件在扫描之后有改动：请重新扫描",
    ),
    "replacement": ("Replacement code", "替换代码"),
    "condition": ("Condition", "条件"),
    "notes": ("To check", "核对要点"),
    "no_replacement": ("None: {why}", "无：{why}"),
    "not_written": ("no replacement was written for it", "未为其生成替换代码"),
    "api": ("API lookup", "API 查询结果"),
    "api_read": ("read in torch_npu {version}, {where}", "取自 torch_npu {version}，{where}"),
    "api_wheel": (
        "no torch_npu wheel at hand: what the kit holds; online: {online}",
        "手边没有 torch_npu wheel：以下为本工具所持内容；在线文档：{online}",
    ),
    "api_plain": ("None: the replacement is plain torch", "无：替换只用 torch 本身"),
    "api_unknown": ("{why}", "{why}"),
    "api_above": ("as above for {op}", "同上文 {op}"),
    "api_note": ("Note on the documentation", "对文档的更正"),
    "reference": ("Reference in the repository", "仓库内参考"),
    "under": ("under {guard}", "条件 {guard}"),
    "risks": ("Risks", "风险"),
    "head_told": (
        "head size {query} of query and key, {value} of value by the configuration's defaults: the op wants 1 to {largest},"
        " and value's no larger than query's{fits}",
        "按 configuration 默认值，query/key 的 head 维为 {query}，value 为 {value}："
        "算子要求 1 至 {largest}，且 value 不大于 query{fits}",
    ),
    "head_misfits": ("; these do NOT fit", "；此处不满足"),
    "head_asked": (
        "no configuration tells the head size: query's and key's must be equal and 1 to {largest}, value's no larger",
        "configuration 未给出 head 维：query 与 key 必须相等且在 1 至 {largest} 之间，value 不得更大",
    ),
    "benefit": ("Expected benefit", "预期收益"),
    "traffic": (
        "Counted while proving ({direction}, {dtype}; calls and bytes, no time): {before} -> {after}; {calls} -> {fewer}"
        " calls, {bytes} -> {least} bytes",
        "验证时计数（{direction}，{dtype}；只是调用数与读写字节数，不是耗时）：{before} -> {after}；调用 {calls} -> {fewer}，"
        "字节 {bytes} -> {least}",
    ),
    "ceiling": (
        "memory-bound: at most {factor:.1f}x on these calls forward, by their bytes",
        "访存瓶颈：按字节数，这些调用的前向最多约 {factor:.1f}x",
    ),
    "no_ceiling": (
        "forward moves {factor:.2f} times the bytes of the original: no gain from memory",
        "前向读写量是原代码的 {factor:.2f} 倍：访存上没有收益",
    ),
    "proof": ("Proof", "验证"),
    "not_proved": ("not tried: scan with --prove", "未验证：扫描时加 --prove"),
    "forced": ("forced so that this code runs", "为执行该代码而强制"),
    "run": ("Run", "用例"),
    "dtypes": ("output dtypes (original / replaced)", "输出 dtype（原 / 替换）"),
    "figures": ("Figures", "数值"),
    "bit_equal": ("bit-equal", "逐位相等"),
    "ulps": (
        "{ulps:.3g} ulp of at most {limit:.3g} (original {original:.3g})",
        "{ulps:.3g} ulp，上限 {limit:.3g}（原代码 {original:.3g}）",
    ),
    "max_abs": ("largest difference {value:.3g}", "最大差 {value:.3g}"),
    "training": ("forward and backward", "前向与反向"),
    "inference": ("forward", "前向"),
    "other_runs": ("{count} further runs: {told}", "另有 {count} 个用例：{told}"),
    "order": ("Suggested order", "建议顺序"),
    "order_intro": (
        "High gain and low risk first; one at a time, accuracy before speed.",
        "收益高、风险低者在前；逐个进行，精度先于性能。",
    ),
    "order_line": ("{risks} risks, proof: {proof}", "风险 {risks} 项，验证：{proof}"),
    "by_hand": ("to be written by hand", "需手工编写"),
    "places": ("{count} places", "{count} 处"),
    "then": ("Then, once what they wait for is settled", "其后，在所待条件明确之后"),
    "failed": ("Files that could not be read", "未能读取的文件"),
    "checklist": ("Decision checklist", "决策清单"),
    "ids": ("List of candidates", "候选清单"),
    "ids_intro": (
        "A confirmation names candidates as they stand here.",
        "确认时按此处的编号选择候选。",
    ),
    "profiled": ("High-frequency kernel sequences", "高频算子序列"),
    "sequence": ("Kernels, in order", "kernel 序列"),
    "times": ("times", "次数"),
    "us": ("total us", "总耗时 us"),
    "share": ("share", "占比"),
    "bound": ("Bound", "瓶颈"),
    "value": ("At most", "上限"),
    "joined": ("Candidate", "对应候选"),
    "no_join": ("no candidate in the scanned code", "所扫代码中无对应候选"),
    "no_op": ("no fused op known for it", "尚无已知的融合算子"),
    "no_sequence": ("the profile shows no such sequence of kernels", "profile 中没有对应的 kernel 序列"),
    "bound_memory": ("memory", "访存"),
    "bound_compute": ("compute", "计算"),
    "bound_launch": ("launch", "launch"),
    "bound_unknown": ("not told", "无法判断"),
    "assumed": (
        "Limits that the bounds rest on; they are assumptions of this kit, no figures of a manual",
        "判断瓶颈所用的界限；均为本工具的假设，并非手册数值",
    ),
    "fused_already": ("Fused kernels in the profile already", "profile 中已有的融合 kernel"),
    "adjacency": (
        "The file names no modules. A sequence counts where its kernels follow each other on one stream in one step, and"
        " each takes what an earlier one of it gave, as far as the shapes tell.",
        "该文件不记录模块名。仅当各 kernel 在同一 stream、同一 step 内相邻，且按 shape 后者使用前者输出时，才计为一个序列。",
    ),
}  # fmt: skip

HAZARDS_ZH: dict[str, str] = {
    "one_plus_weight": "乘以 1 + weight：传入 weight + 1，或用 npu_gemma_rms_norm",
    "weight_none": "可能没有 weight：算子必须有，传入全 1",
    "fp32_weight_bf16_input": "半精度输入配 float32 weight",
    "dtype_order": "舍入次序与算子不同：结果可能差一个舍入步",
    "eps_inside_or_outside": "eps 并非简单加到均方上：与算子核对",
    "gate_second_half": "被激活的是后半部分：npu_swiglu 激活前半，npu_geglu 默认激活后半",
    "clamp_or_bias_in_gate": "门控中有 clamp、常数或系数：普通算子不计算",
    "rope_interleave": "相邻元素成对：rotary_mode 'interleave'，支持的广播形式很少",
    "rope_complex": "复数乘法：需先得到实数 cos 与 sin",
    "rope_partial": "只旋转 head 的一部分：切片、旋转、再拼接",
    "rope_half_width_cos_sin": "cos/sin 只有一半宽度：算子需要完整宽度",
    "rope_per_batch_cos_sin": "cos/sin 带 batch 维：核对广播形式",
    "rope_reversed": "旋转方向与算子相反：应传入 -sin",
    "rope_2d": "多个位置轴共用 head 维",
    "gqa": "K/V 头数较少：不要 repeat，算子自行处理",
    "mask_additive": "mask 是加上去的：算子要布尔 mask 且 True=屏蔽（或在 scale 之前作为 pse）",
    "mask_bool_keep": "此处 True=保留，算子中 True=屏蔽：取反",
    "softcap": "分数有 tanh soft cap：算子没有",
    "sinks": "attention sink：普通用法没有",
    "sliding_window": "滑动窗口：sparse_mode 4 与 pre_tockens",
    "dropout": "概率上有 dropout：keep_prob，随机流不同",
    "expert_bias": "expert 有 bias：按组另行相加",
    "weight_layout_EN_K": "权重按 [E, N, K] 堆叠：算子要 [E, K, N]",
    "dispatch_elsewhere": "默认可能执行别的代码：先确认执行的就是这段",
    "scale_not_rsqrt_d": "scale 不是 1 / sqrt(head_dim)：显式传入，算子默认 1.0",
    "relative_position_bias": "分数上加了位置偏置：作为 pse，并除以 scale",
    "alibi": "ALiBi：pse 与专用 pse_type",
    "cross_attention": "K/V 可能来自别处：query 与 key 长度不同",
    "not_softmax": "分数不是用 softmax 归一化：算子做不到",
    "head_sizes": "query/key 与 value 的 head 维不同，或超出算子范围",
    "dynamic_shape": "shape 随数据变化：NPU 会为每个新 shape 重新编译",
    "non_contiguous": "操作数来自切片或转置：先调用 contiguous()",
    "training_backward": "该算子在 torch_npu 中没有反向：仅推理，或自写 autograd 封装",
}


def say(lang: Lang, key: str, **filled: object) -> str:
    """The words of `key` in `lang`, filled in. Raises KeyError for a key that is not in the table."""
    return WORDS[key][lang == "zh"].format(**filled)


def hazard(lang: Lang, name: str) -> str:
    """What a hazard means for the replacement."""
    return HAZARDS_ZH[name] if lang == "zh" else HAZARDS[name]


def written_as(lang: Lang, op: str) -> str:
    """What code an op takes the place of."""
    row = fused_op(op)
    return row.code_zh if lang == "zh" else row.code
