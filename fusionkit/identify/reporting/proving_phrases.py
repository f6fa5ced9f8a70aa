"""What a proof says, in Chinese: its reason and those of its runs, how a run was called, and what a comparison found."""

from __future__ import annotations

_ENDED: dict[str, str] = {
    "time limit reached: {seconds} s while {what}": "达到时间上限 {seconds} s，当时正在{what}",
    "time limit reached: {seconds} s": "达到时间上限 {seconds} s",
    "the process ended with code {code} while {what}": "进程在{what}时退出，退出码 {code}",
    "the process ended with code {code}": "进程退出，退出码 {code}",
    "the code that was run wrote a result of its own while {what}": "被执行的代码在{what}时自行写入了结果",
    "the code that was run wrote a result of its own": "被执行的代码自行写入了结果",
    "the original module is imported": "导入原模块",
    "the original code is built": "构建原代码",
    "the replaced code is imported": "导入替换代码",
    "the replaced code is built": "构建替换代码",
    "the original code runs": "运行原代码",
    "the replaced code runs": "运行替换代码",
    "the original code runs backward": "运行原代码的反向",
    "the replaced code runs backward": "运行替换代码的反向",
    "the results are kept": "保存结果",
}  # fmt: skip

_CONCLUDED: dict[str, str] = {
    "{passing} of {runs} runs pass, {undecided} say nothing": "{runs} 个用例中 {passing} 个通过，{undecided} 个无法说明问题",
    "{passing} of {runs} runs pass": "{runs} 个用例中 {passing} 个通过",
    "{failing} of {runs} runs fail; {why}": "{runs} 个用例中 {failing} 个不通过；{why}",
    "no run in {dtype} passes: {why}": "没有 {dtype} 用例通过：{why}",
    "nothing ran": "没有用例运行",
    "the fused branch reads {name}, and no run that says anything gave it a mask":
        "融合分支读取 {name}，而有效用例中没有一个传入该 mask",
    "with a guessed {name} {why}": "{name} 取猜测值时：{why}",
}  # fmt: skip

_BUILT: dict[str, str] = {
    "no recipe for parameter {name} of {symbol}, and no usual shape fits it":
        "不知道如何构造 {symbol} 的参数 {name}，常见形状也都不适用",
    "no recipe for parameter {name} of {symbol}": "不知道如何构造 {symbol} 的参数 {name}",
    "no configuration class is found for {name}": "没有找到 {name} 的 configuration 类",
    "no attention class for parameter attn of {symbol}": "没有找到 {symbol} 的参数 attn 所需的 attention 类",
    "{name} is not there after importing the module": "导入模块后找不到 {name}",
    "the replaced {name} has other weights: {weight}": "替换后的 {name} 权重不同：{weight}",
    "{path}: the name {name} belongs to {other} here; it cannot be imported":
        "{path}：名称 {name} 在此环境中属于 {other}，无法导入",
    "{path}: not a file that Python imports": "{path}：不是 Python 能导入的文件",
    "{path}: no module can be made of it": "{path}：无法构成模块",
    "nothing to call": "没有可调用的对象",
    "the file has no rotary embedding class that gives cos and sin": "文件中没有给出 cos 与 sin 的 rotary embedding 类",
    "LookupError: {why}": "LookupError：{why}",
    "MisuseError: {why}": "{why}",
    "the original cannot be called: no layout of its operands fits": "无法调用原代码：操作数的各种布局都不适用",
    "the original cannot be built: {why}": "无法构建原代码：{why}",
    "the original cannot be called: {why}": "无法调用原代码：{why}",
    "the original gives other numbers each time: what is random cannot be compared": "原代码每次结果不同：含随机性，无法比较",
    "the original gives NaN (case {what})": "原代码输出 NaN（用例：{what}）",
    "the replaced module cannot be imported: {why}": "无法导入替换后的模块：{why}",
    "the replaced code cannot be built: {why}": "无法构建替换代码：{why}",
}  # fmt: skip

_RAN: dict[str, str] = {
    "the original raises {error} backward": "原代码反向抛出 {error}",
    "the original raises {error}": "原代码抛出 {error}",
    "the replaced code raises {error} backward, the original does not": "替换代码反向抛出 {error}，原代码不抛出",
    "the replaced code raises {error}, the original does not": "替换代码抛出 {error}，原代码不抛出",
    "the replaced code makes no call of {op} here": "此用例中替换代码没有调用 {op}",
    "no new branch runs here": "此用例中没有执行新增的分支",
    "the original calls {op} itself here": "此用例中原代码自己就调用了 {op}",
    "what {op} gives does not reach the outputs here": "此用例中 {op} 的结果不影响输出",
    "{name} is not returned by the fused branch": "融合分支不返回 {name}",
    "{what} by the original alone": "仅原代码：{what}",
    "written {name}": "写入 {name}",
    "no gradients compared: the fused op is not called when they are asked for": "未比较梯度：要求梯度时不会调用融合算子",
    "no float64 reference ({error})": "没有 float64 参考（{error}）",
    "no floating output was compared: equal whole numbers say nothing of rounding":
        "没有比较浮点输出：整数相等说明不了舍入",
}  # fmt: skip

# The longer rows first: a hole takes in whatever stands between.
_COMPARED: dict[str, str] = {
    "{outputs} outputs pass": "{outputs} 个输出通过",
    "the largest error: {why}": "误差最大者：{why}",
    "no float64 reference: expected taken for it, floor only": "没有 float64 参考：以原代码结果代替，只按误差下限判断",
    "{what}: mean error {mean} <= {limit} ulp, max error {largest} <= {bound} ulp, row cosine {cosine}":
        "{what}：平均误差 {mean} ulp（上限 {limit}），最大误差 {largest} ulp（上限 {bound}），行余弦 {cosine}",
    "{what}: mean error {mean} <= {limit} ulp, max error {largest} <= {bound} ulp, no row large enough for a cosine":
        "{what}：平均误差 {mean} ulp（上限 {limit}），最大误差 {largest} ulp（上限 {bound}），没有足够大的行可算余弦",
    "{what}: mean error {value} ulp exceeds {limit} ({inside})": "{what}：平均误差 {value} ulp 超过上限 {limit}（{inside}）",
    "{what}: max error {value} ulp exceeds {limit} ({inside})": "{what}：最大误差 {value} ulp 超过上限 {limit}（{inside}）",
    "{what}: error {value} of its norm exceeds {limit} ({inside})":
        "{what}：误差为其范数的 {value}，超过上限 {limit}（{inside}）",
    "{factor} x the original's, here {own}; at least {floor} eps":
        "原代码误差的 {factor} 倍，此处原代码为 {own}；至少 {floor} eps",
    "{factor} x the original's, here {own}; at least {floor}": "原代码误差的 {factor} 倍，此处原代码为 {own}；至少 {floor}",
    "{what}: off by more than {factor} x the original's rounding": "{what}：偏差超过原代码舍入误差的 {factor} 倍",
    "{what}: cosine {cosine} of row {row} is below {limit}": "{what}：第 {row} 行的余弦 {cosine} 低于 {limit}",
    "{what}: NaN or Inf disagrees at {count} elements: {nan} NaN and {inf} Inf, expected {nans} and {infs}":
        "{what}：有 {count} 个元素的 NaN 或 Inf 不一致：NaN {nan} 个、Inf {inf} 个，应为 {nans} 个与 {infs} 个",
    "{what}: shape {shape}, expected {wanted}": "{what}：形状 {shape}，应为 {wanted}",
    "{what}: dtype {dtype}, expected {wanted}": "{what}：dtype {dtype}，应为 {wanted}",
    "{what}: {dtype} values are equal": "{what}：{dtype} 值相等",
    "{what}: {dtype} values differ, by up to {value}": "{what}：{dtype} 值不同，最多相差 {value}",
    "{what}: {value} equals expected {wanted}": "{what}：{value} 与预期 {wanted} 相等",
    "{what}: {value} differs from expected {wanted}": "{what}：{value} 与预期 {wanted} 不同",
    "{what}: {kind} is neither a tensor nor a plain value": "{what}：{kind} 既不是张量也不是普通值",
    "return tensors": "应返回张量",
    "{what}: a fake or meta tensor carries no values": "{what}：fake 或 meta 张量不含数值",
    "{what}: empty tensor, nothing to compare": "{what}：空张量，无可比较",
    "{what}: no finite element to compare": "{what}：没有有限元素可比较",
    "{what}: zero throughout, no defect could show": "{what}：全为零，显不出缺陷",
    "{what}: the reference has shape {shape}, the output {wanted}": "{what}：参考的形状为 {shape}，输出为 {wanted}",
    "{what}: no output to compare": "{what}：没有输出可比较",
    ": no output to compare": "没有输出可比较",
    "gradient of {name}": "{name} 的梯度",
}  # fmt: skip

_SIZED: dict[str, str] = {
    "{where} under autocast, {what}, {heads} heads of {width}: {why}":
        "autocast 下的 {where}，{what}，{heads} 个头，每头 {width}：{why}",
    "float32, {what}, {heads} heads of {width}: {why}": "float32，{what}，{heads} 个头，每头 {width}：{why}",
    "bfloat16, {what}, {heads} heads of {width}: {why}": "bfloat16，{what}，{heads} 个头，每头 {width}：{why}",
    "float16, {what}, {heads} heads of {width}: {why}": "float16，{what}，{heads} 个头，每头 {width}：{why}",
}  # fmt: skip

_CASES: dict[str, str] = {
    "{what}, {heads} heads of {width}": "{what}，{heads} 个头，每头 {width}",
    "plain": "基本调用",
    "rows of every scale": "各种量级的行",
    "with gate": "带 gate",
    "second input": "带第二个输入",
    "halves": "前后两半成对",
    "complex": "复数",
    "rotary": "带 rotary",
    "rotary by position": "按位置的 rotary",
    "rotary, complex": "复数 rotary",
    "additive causal mask with padding": "带 padding 的加性 causal mask",
    "additive {what}": "加性 {what}",
    "boolean {what}": "布尔 {what}",
    "0/1 {what}": "0/1 {what}",
    "padding mask [B, 1, 1, L] of the other sequence": "另一序列的 padding mask [B, 1, 1, L]",
    "padding mask [B, 1, 1, L + S] of both sequences": "两个序列的 padding mask [B, 1, 1, L + S]",
    "mask [B, L] of the other sequence": "另一序列的 mask [B, L]",
}  # fmt: skip

PROVING: dict[str, str] = _SIZED | _ENDED | _CONCLUDED | _BUILT | _RAN | _COMPARED | _CASES
