"""What the writer of replacements says, in Chinese: what to check by eye, and why nothing is written."""

from __future__ import annotations

_NOTES: dict[str, str] = {
    "npu_add_rms_norm has no backward in torch_npu: where gradients are on, the original runs":
        "npu_add_rms_norm 在 torch_npu 中没有反向：启用梯度时走原代码",
    "the op rounds the sum, and on Atlas A2 and A3 the normalised sum once more, to the input's dtype":
        "算子把残差和舍入到输入 dtype；在 Atlas A2、A3 上归一化后的值还会再舍入一次",
    "hooks on the norm module do not run in the fused branch": "融合分支中不会触发 norm 模块上的 hook",
    "0 times infinity is not a number: both branches have to be finite everywhere":
        "0 乘无穷得 NaN：两个分支的值必须处处有限",
    "npu_grouped_matmul has no backward in torch_npu: where gradients are on, the original runs":
        "npu_grouped_matmul 在 torch_npu 中没有反向：启用梯度时走原代码",
    "each token's experts are summed at once: the original rounds after every expert":
        "每个 token 的各 expert 结果一次求和：原代码每累加一个 expert 舍入一次",
    "the expert weights are transposed views [E, K, N]; keep them so in memory for the best speed":
        "expert 权重是转置得到的 [E, K, N] view；在显存中直接按此布局存放性能最好",
    "npu_grouped_matmul takes one weight [E, K, N] of all experts for each product, so they have to be stacked first":
        "npu_grouped_matmul 的每次乘法要求所有 expert 堆叠成一个权重 [E, K, N]，须先堆叠",
    "a float mask is read as a boolean one, below 0 drops: a mask that holds a bias is not for the fused branch":
        "浮点 mask 按布尔解读，小于 0 即屏蔽：带偏置的 mask 不能走融合分支",
    "the fused branch returns None for the attention weights": "融合分支返回的 attention weights 为 None",
    "a row that is masked throughout comes out otherwise than from the original: do not read it":
        "整行被屏蔽时结果与原代码不同：不要使用该行",
    "the cat copies both factors: with the weights of their two projections stacked into one at load time, one product"
    " gives them joined and the cat goes":
        "cat 会拷贝两个因子：若加载时把两个投影的权重堆叠为一个，一次 matmul 即得到拼好的结果，可省去 cat",
    "both factors need the same shape: the op splits one tensor in the middle":
        "两个因子形状必须相同：算子从中间切分同一个张量",
    "on the NPU F.gelu itself is the tanh form whatever is asked: npu_gelu keeps to the form that is named":
        "NPU 上 F.gelu 无论指定何种形式都按 tanh 近似计算：npu_gelu 按指定的形式计算",
    "is_causal becomes sparse_mode 2, aligned at the top left as well; its 2048 x 2048 template (4 MB) is made at every"
    " call, since one that is kept would be caught by graph capture or inference mode: where a profile shows it, hold it"
    " as a buffer of the module":
        "is_causal 转为 sparse_mode 2，同样以左上角对齐；其 2048 x 2048 mask 模板（4 MB）每次调用时生成，"
        "因为缓存的模板会被图捕获或 inference mode 固定住：若 profile 显示其耗时，可作为模块的 buffer 保存",
    "the op normalises over as many last dimensions as the weight has": "算子归一化的末尾维数等于 weight 的维数",
    "the op rounds once, the original before the weight too: one rounding step of half precision may differ":
        "算子只舍入一次，原代码乘 weight 之前还舍入一次：半精度下可能相差一个舍入步",
    "where weight and input differ in dtype the original runs: its result is promoted":
        "weight 与输入 dtype 不同时走原代码：其结果会做类型提升",
    "the fused optimizer joins parameters and gradients into one tensor: build it after the model is on the NPU":
        "融合优化器把参数和梯度合并成一个张量：须在模型搬到 NPU 之后再创建",
    "state saved by the original is not laid out as its own": "原优化器保存的 state 与融合优化器的布局不同",
    "the op takes few broadcast forms of cos and sin: 11SD, B1SD, BNSD and their like (half), one sequence axis"
    " (interleave)":
        "算子支持的 cos/sin 广播形式很少：half 模式为 11SD、B1SD、BNSD 等，interleave 模式只能有一个序列轴",
    "in half precision the op rounds once, the original after each product":
        "半精度下算子只舍入一次，原代码每次乘法后都舍入",
    "the head size has to be even, and below 896; batch and heads each below 1000":
        "head 维须为偶数且小于 896；batch 与头数均须小于 1000",
    "{name} is chosen by the configuration": "{name} 由 configuration 决定",
    "asks the existing switch {name} (this file)": "沿用已有开关 {name}（本文件）",
    "asks the existing switch {name} ({place}; {why})": "沿用已有开关 {name}（{place}；{why}）",
    "asks the existing switch {name} ({place})": "沿用已有开关 {name}（{place}）",
    "asks the existing switch {name}": "沿用已有开关 {name}",
    "no torch_npu call stands under it yet": "其下尚无 torch_npu 调用",
    "one place keeps its original code: {why}": "有一处保留原代码：{why}",
}  # fmt: skip

_NORMS: dict[str, str] = {
    "the norm's class cannot be read": "读不到 norm 的类定义",
    "the norm's weight and eps are not told by its class": "从 norm 的类定义看不出 weight 与 eps",
    "the norm is not called as self.norm(x)": "norm 不是以 self.norm(x) 的形式调用",
    "the sum is changed before it goes into the norm, or depends on a branch": "残差和在进入 norm 之前被改动，或取决于分支",
    "what is added has no name: its dtype cannot be asked": "相加的值没有变量名：无法查询其 dtype",
    "the sum is not assigned by itself": "残差和不是单独赋值的",
    "the sum is not assigned to a name": "残差和没有赋给变量",
    "the call of rms_norm is not written with its input": "rms_norm 的调用没有写出输入",
    "the root of the mean square is not written as rsqrt(mean(x**2) + eps)": "均方根不是写成 rsqrt(mean(x**2) + eps)",
    "eps is not simply added to the mean square": "eps 不是直接加到均方上",
    "what is averaged is no square": "取均值的不是平方",
    "the norm does not end in a product": "norm 不是以乘法结尾",
    "the mean is not taken over the last dimension": "均值不是在最后一维上取的",
    "the norm ends in a branch": "norm 以分支结尾",
    "the dtype of the norm's result cannot be told from the code": "从代码看不出 norm 结果的 dtype",
    "npu_add_rms_norm takes a weight of the input's dtype, to which 1 + weight would be rounded":
        "npu_add_rms_norm 的 weight 须与输入同 dtype，1 + weight 会因此被舍入",
}  # fmt: skip

_GATES: dict[str, str] = {
    "the activation cannot be told": "看不出用的是哪个激活函数",
    "the activation is not called": "没有调用激活函数",
    "the activation is a method of another object": "激活函数是另一个对象的方法",
    "the activation is called without an argument": "激活函数调用时没有参数",
    "the activation depends on a branch": "激活函数取决于分支",
    "the activation stands nowhere": "代码中找不到激活函数的位置",
    "the activation cannot be told apart in the text": "代码文本中无法把激活函数单独区分出来",
    "the activated tensor is read elsewhere, too": "激活后的张量还在别处使用",
    "the form of GELU depends on a variable": "GELU 的形式取决于变量",
    "the configuration's default {name} is no form of GELU that the op has":
        "configuration 默认的 {name} 不是算子支持的 GELU 形式",
    "{name} is no form of GELU that the op has": "算子没有 {name} 这种 GELU 形式",
    "GELU is written out: its form is not told by a name": "GELU 是手写展开的：没有名称说明是哪种形式",
    "the sigmoid has a factor inside, which the op leaves out": "sigmoid 内有系数，算子不计算它",
    "x * sigmoid(x) is not written as a product": "x * sigmoid(x) 不是写成乘法",
    "the gate is no product of two": "门控不是两个因子相乘",
    "a factor of the gate is broadcast: the op needs two of one shape": "门控的一个因子有广播：算子要求两个因子形状相同",
    "the gate holds a clamp, a constant or a factor that the op leaves out": "门控中有 clamp、常数或系数，算子不计算它们",
}  # fmt: skip

_ROTATIONS: dict[str, str] = {
    "the rotation is not written as a sum of two products": "旋转不是写成两个乘积之和",
    "the rotation is not written with cos and sin": "旋转没有用 cos 与 sin 来写",
    "what is turned is not what is multiplied with cos": "被旋转的张量与乘 cos 的张量不是同一个",
    "the rotation stands nowhere": "代码中找不到旋转的位置",
    "the rotation runs over all heads at once: the op rotates heads, of 895 at most":
        "旋转一次作用于所有头拼在一起的维度：算子按 head 旋转，head 维最大 895",
    "the dtype of an operand of the rotation cannot be asked": "无法查询旋转某个操作数的 dtype",
    "the sizes of an operand of the rotation cannot be asked": "无法查询旋转某个操作数的形状",
    "the rotation turns the other way than the op's": "旋转方向与算子相反",
    "what is turned depends on a branch": "被旋转的内容取决于分支",
    "neighbours or halves are turned, by a test that cannot be asked again":
        "旋转相邻元素还是前后两半由一个条件决定，而该条件无法再次查询",
    "what chooses between neighbours and halves changes before the fused op is called":
        "决定旋转相邻元素还是前后两半的值在调用融合算子之前有变化",
    "the complex product is not of view_as_complex and frequencies": "复数乘法不是 view_as_complex 的结果与频率相乘",
    "the complex numbers are not made of neighbours": "复数不是由相邻元素组成",
    "the complex result is not made real and flat where it is made": "复数结果没有就地转成实数并展平",
    "the two results are not joined by cat or stack": "两个结果不是用 cat 或 stack 合并",
    "the joined pair stands nowhere": "代码中找不到合并结果的位置",
    "the pair is not x1 * cos - x2 * sin and x2 * cos + x1 * sin": "两个结果不是 x1 * cos - x2 * sin 与 x2 * cos + x1 * sin",
    "the signs of the pair are others": "两个结果的正负号不同",
    "the two results are not of one pair": "两个结果不属于同一对",
    "the pairs are taken from one layout and put back into another": "成对元素取出与放回时的布局不同",
    "the pair is not of one tensor, first and second in order": "这一对不是按先后次序取自同一个张量",
    "the pair is not joined along the last dimension": "两个结果不是沿最后一维合并",
    "the stacked pair is not flattened where it is made": "stack 的结果没有就地展平",
    "the pair is not split off one tensor": "这一对不是从同一个张量切分出来的",
    "the two results are not written into two slices, one after the other": "两个结果不是先后写入两个切片",
    "what the results are written into is read between them": "两次写入之间目标张量被读取",
    "the two slices are not every second number, from 0 and from 1 on": "两个切片不是从 0 和从 1 开始的隔一取一",
    "the results are not written into an empty tensor": "结果不是写入 empty 张量",
    "the results are written into a tensor that is not like x": "写入的目标张量与 x 的形状或 dtype 不同",
    "what the results are written into has no name": "写入的目标没有变量名",
    "a slice is not written as out[...] = result": "切片写入不是 out[...] = result 的形式",
}  # fmt: skip

_ATTENTION: dict[str, str] = {
    "the probabilities do not come straight from a softmax": "概率不是直接来自 softmax",
    "the weighted sum of values is not written as a matmul": "对 value 的加权和不是写成 matmul",
    "the softmax is not taken over the last dimension": "softmax 不是在最后一维上计算",
    "the scores are not a matmul of query and key": "分数不是 query 与 key 的 matmul",
    "the key is not transposed where the scores are made": "计算分数处没有转置 key",
    "the key is not transposed over its last two dimensions": "key 转置的不是末尾两维",
    "several masks are laid on the scores": "分数上叠加了多个 mask",
    "the mask may be absent, and what says so cannot be told": "mask 可能不存在，而无法从代码判断何时不存在",
    "the dropout is not called": "没有调用 dropout",
    "the dropout's rate is not given": "没有给出 dropout 的概率",
    "the scale is a tensor, and the op wants a number": "scale 是张量，算子要求标量",
    "{name} is worked on after the attention, and the op does not give it": "注意力之后还要用到 {name}，而算子不返回它",
    "the attention is not called": "没有调用注意力函数",
    "the attention's arguments are handed over by * or **": "注意力函数的参数是用 * 或 ** 传入的",
    "the attention is given {names}, which the op does not have": "注意力函数传入了 {names}，算子没有对应参数",
    "the attention is called without query, key or value": "注意力函数调用时缺少 query、key 或 value",
    "the scores go through {name}, which the op does not have": "分数还经过 {name}，算子不含这一步",
    "the scores cannot be told from what they are combined with": "无法把分数与同它运算的另一项区分开",
    "a mask is laid on the scores by arguments that cannot be told apart": "对分数加 mask 的调用参数无法区分",
    "what the mask fills in is not seen to drop: no large negative number": "看不出 mask 填充值是用于屏蔽的：不是很大的负数",
    "the scores depend on a branch": "分数取决于分支",
    "the scale depends on a branch": "scale 取决于分支",
    "a soft cap bends the scores": "分数经过 soft cap",
    "the scores are made in too many steps": "分数的计算步骤过多",
    "a bias is added to the scores: pse would have to carry it": "分数上加了偏置：须经 pse 传入",
    "the softmax holds attention sinks, which the op of this form leaves out": "softmax 含 attention sink，算子的这种用法不支持",
    "ALiBi is added to the scores": "分数上加了 ALiBi",
    "the scores are not normalised by a softmax": "分数不是用 softmax 归一化",
    "a position bias is added to the scores": "分数上加了位置偏置",
}  # fmt: skip

_EXPERTS: dict[str, str] = {
    "the experts are not computed in a loop over them": "各 expert 不是在循环中逐个计算",
    "the loop over experts has several variables": "expert 循环有多个循环变量",
    "the tokens of an expert are not chosen by torch.where over a mask, or where its number is routed to":
        "expert 的 token 不是用 torch.where 按 mask 或按 expert 编号选出",
    "the results of the experts are not gathered by index_add_": "expert 的结果不是用 index_add_ 汇总",
    "the results of the experts are added to {name}, which is not seen to be zeros":
        "expert 的结果累加到 {name}，而看不出它初始为零",
    "{name} is not seen to have the dtype of the tokens": "看不出 {name} 与 token 的 dtype 相同",
    "the loop over experts does not count all of them from 0 on": "expert 循环没有从 0 起遍历全部 expert",
    "the mask of the experts' tokens is not made by one_hot(...).permute(2, 1, 0)":
        "expert 的 token mask 不是由 one_hot(...).permute(2, 1, 0) 得到",
    "the loop over experts stands nowhere": "代码中找不到 expert 循环的位置",
    "the experts are modules of their own: {why}": "各 expert 是独立的模块：{why}",
    "the tokens of an expert are not taken from one tensor": "expert 的 token 不是取自同一个张量",
    "the results of the experts are not weighted by one tensor": "expert 的结果不是由同一个张量加权",
    "the routing weights are not laid on the experts' results by a product": "路由权重不是以乘法作用于 expert 的结果",
    "no product with the stacked weights of the experts was found": "没有找到与 expert 堆叠权重的乘法",
    "a linear layer in the loop over experts is not of stacked weights": "expert 循环中有线性层用的不是堆叠权重",
    "a bias in the loop over experts is not of stacked biases": "expert 循环中有 bias 不是堆叠 bias",
    "{name} is a list with a weight for each expert: {why}": "{name} 是每个 expert 一个权重的列表：{why}",
    "the loop over experts uses {names} in another way": "expert 循环以其他方式使用了 {names}",
}  # fmt: skip

_CODE: dict[str, str] = {
    "the assignment at a mask is not written as x[mask] = value": "按 mask 赋值不是写成 x[mask] = value",
    "the mask or what it is laid on is no plain name": "mask 或被赋值的张量不是简单变量名",
    "what is assigned at the mask is no number": "按 mask 赋的值不是常数",
    "what is assigned at the mask is no finite number": "按 mask 赋的值不是有限数",
    "where is not called with three arguments in order": "where 的调用不是依次给出三个参数",
    "a branch of where is a number or an expression: its dtype and finiteness cannot be asked":
        "where 的一个分支是常数或表达式：无法查询其 dtype 及是否有限",
    "a branch of where is called an index, a mask or a bound: lerp is for finite floats":
        "where 的一个分支从名称看是索引、mask 或边界值：lerp 只适用于有限浮点数",
    "the optimizer is not built by a call": "优化器不是由调用创建",
    "the optimizer is given {names}, which the fused one does not know": "优化器传入了 {names}，融合优化器没有该参数",
    "an operand has no name where the fused op is called": "调用融合算子处某个操作数没有变量名",
    "an operand stands nowhere": "代码中找不到某个操作数的位置",
    "an operand is no expression": "某个操作数不是表达式",
    "an operation is not written with two operands": "某个运算不是写成两个操作数",
    "a part of the code stands nowhere": "部分代码找不到位置",
    "{names} changes before the fused op is called": "{names} 在调用融合算子之前有变化",
    "the file does not import torch": "文件没有 import torch",
    "nothing of the code is left to call the fused op": "代码中没有剩下可调用融合算子的位置",
    "the condition needs {names} before it is there": "条件用到了 {names}，但此时它还不存在",
    "the code holds {name}, which a second branch would repeat": "代码中有 {name}，增加分支会重复它",
    "the statement shares its line with another one": "该语句与另一语句同在一行",
    "the code cannot be taken apart into tokens": "代码无法分解为 token",
    "a string in the code runs over several lines": "代码中有跨多行的字符串",
    "lines would have to stand before a statement of an inner block": "需在内层代码块的语句之前插入代码",
    "the code stands outside of the function": "代码在函数之外",
    "the code stands outside of the function's body": "代码在函数体之外",
    "the code stands in several functions": "代码分布在多个函数中",
    "the replacement does not come back from the file's encoding, {name}": "替换代码按文件编码 {name} 写入再读出后不一致",
    "the replacement cannot be written in the file's encoding, {name}": "替换代码无法用文件编码 {name} 写出",
    "the replacement would not parse: line {line}: {error}": "替换后的文件无法解析：第 {line} 行：{error}",
    "the replacement would change the statements of the module": "替换会改动模块中的其他语句",
    "the original code would not survive as the else branch": "原代码无法原样保留为 else 分支",
    "no replacement is written for {op}": "不为 {op} 生成替换代码",
    "the code of the site was not found again": "没有再次找到该处代码",
    "the code calls {op} in a branch of its own already": "代码已有调用 {op} 的分支",
    "the module that the class builds is not called by the class itself": "类创建的模块不是由该类自己调用",
    "the code is inherited: replace it in {place}, where it is written": "代码是继承来的：应在其所在的 {place} 处替换",
    "the writer of replacements broke on it: {error}; please report it": "生成替换代码时出错：{error}；请反馈",
    "the writer broke on it ({error}); please report it": "生成替换代码时出错（{error}）；请反馈",
    "no replacement: {why}": "无替换代码：{why}",
    "cannot be read: {why}": "无法读取：{why}",
    "larger than {size} MB": "大于 {size} MB",
    "not {encoding} at byte {place}; declare the encoding in the first line":
        "第 {place} 字节不是 {encoding} 编码；请在首行声明编码",
    "not utf-8; declare the encoding in the first line": "不是 utf-8 编码；请在首行声明编码",
    "nested too deeply to be parsed": "嵌套过深，无法解析",
    "{what} a syntax error in line {line}: {error}": "{what}第 {line} 行语法错误：{error}",
    "Python 2, or": "Python 2 代码，或",
    "no Python 3:": "不是 Python 3：",
    "no Python source: {error}": "不是 Python 源码：{error}",
    "takes longer than {seconds} s to read": "读取超过 {seconds} s",
    "the process that read it died": "读取该文件的进程意外终止",
    "the process that wrote its replacements died": "生成其替换代码的进程意外终止",
    "the scan itself broke on it: {error}; please report it": "扫描自身出错：{error}；请反馈",
}  # fmt: skip

REPLACING: dict[str, str] = {**_NOTES, **_NORMS, **_GATES, **_ROTATIONS, **_ATTENTION, **_EXPERTS, **_CODE}
