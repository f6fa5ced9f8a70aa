"""npu_grouped_matmul in place of a loop over stacked experts: permute, multiply by group, unpermute."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.expert_loop import ExpertLoop, check_start, expert_loop
from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import STEP, indented_by, names

_CALLED = ("call", "call_method", "module")
_STACKED = "npu_grouped_matmul takes one weight [E, K, N] of all experts for each product, so they have to be stacked first"
_NOTES = (
    "npu_grouped_matmul has no backward in torch_npu: where gradients are on, the original runs",
    "each token's experts are summed at once: the original rounds after every expert",
)
_TURNED = "the expert weights are transposed views [E, K, N]; keep them so in memory for the best speed"


def replace_experts(place: Place) -> list[Change]:
    """The change for one loop. Raises Unfit where its experts are modules, or more than stacked products."""
    if place.value.node is None:
        raise Unfit("the loop over experts stands nowhere")
    if place.value.op in _CALLED:
        raise Unfit(f"the experts are modules of their own: {_STACKED}")
    loop = expert_loop(place.unit.node, place.value.node)
    block = place.statements.block(loop.node)
    first = next(index for index, item in enumerate(block) if item is loop.node)
    read = names(loop.node)[0]
    parts = [
        item for item in block[:first] if names(item)[1] & read and not isinstance(item, (ast.If, ast.For))
    ]
    state = _Fused(place, loop)
    text = "\n".join(state.lines())
    notes = (*_NOTES, _TURNED) if ".transpose(" in text else _NOTES
    return [Change({loop.node: text}, tuple(parts), conditions=_asked(place, state), notes=notes)]


def _asked(place: Place, state: _Fused) -> tuple[str, ...]:
    """No gradients, tokens as rows, and where experts are counted, as many as are stacked."""
    conditions = [f"not {place.in_function('is_grad_enabled')}()", f"{state.tokens}.dim() == 2"]
    if state.loop.count:
        routing = place.text(state.loop.routing)
        conditions += [f"{state.stack}.shape[0] == {state.loop.count}", f"{routing}.dim() == 2"]
    return tuple(conditions)


class _Fused:
    """The fused lines of one loop."""

    def __init__(self, place: Place, loop: ExpertLoop) -> None:
        self.place, self.loop = place, loop
        self.tokens, self._gathered = self._states()
        check_start(place.unit.node, loop, self.tokens)
        self.weights = self._routing_weights()
        self.permuted, self.order, self.counts, self.dtype = (
            place.fresh(name)
            for name in ("permuted_states", "sorted_indices", "expert_counts", "compute_dtype")
        )
        self.indices, self.probs = place.fresh("expert_indices"), place.fresh("expert_weights")
        self.stack = ""

    def lines(self) -> list[str]:
        """Everything that stands in the place of the loop."""
        texts = self._products()
        texts.update((id(node), self.permuted) for node in self._gathered)
        texts.update(self._unweighted(texts))
        body = [line for item in self.loop.body[:-1] for line in self._written(item, texts)]
        return [*self._before(), *body, *self._after(texts)]

    def _states(self) -> tuple[str, list[ast.AST]]:
        """(the tensor that tokens are taken from, where they are)."""
        found = [
            node
            for item in self.loop.body
            for node in ast.walk(item)
            if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == self.loop.token
        ]
        texts = {ast.unparse(node.value) for node in found}
        if len(texts) != 1 or not next(iter(texts)).isidentifier():
            raise Unfit("the tokens of an expert are not taken from one tensor")
        return next(iter(texts)), list(found)

    def _routing_weights(self) -> str:
        """The tensor [T, K] that results are multiplied with."""
        found = {ast.unparse(node.value) for node in self._weightings()}
        if len(found) != 1 or not next(iter(found)).isidentifier():
            raise Unfit("the results of the experts are not weighted by one tensor")
        return next(iter(found))

    def _weightings(self) -> list[ast.Subscript]:
        wanted = f"({self.loop.token}, {self.loop.slot}, None)"
        return [
            node
            for item in self.loop.body
            for node in ast.walk(item)
            if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") == wanted.strip("()")
        ]

    def _unweighted(self, texts: dict[int, str]) -> dict[int, str]:
        """Products with the routing weights become their other factor: the weights go into the unpermutation."""
        found: dict[int, str] = {}
        for node in self._weightings():
            product = self.place.statements.parent(node)
            if (
                not isinstance(product, ast.BinOp)
                or not isinstance(product.op, ast.Mult)
                or product.right is not node
            ):
                raise Unfit("the routing weights are not laid on the experts' results by a product")
            found[id(product)] = self.place.statements.rewritten(product.left, texts, "")
        return found

    def _products(self) -> dict[int, str]:
        """Every product with an expert's weights as a grouped one, every bias repeated by group."""
        texts: dict[int, str] = {}
        for item in self.loop.body:
            for node in reversed([*ast.walk(item)]):  # what a product is taken of comes first
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func).endswith("linear")
                    and len(node.args) > 1
                ):
                    self._linear(node, texts)
                elif (
                    isinstance(node, ast.BinOp)
                    and isinstance(node.op, ast.MatMult)
                    and self._of_expert(node.right)
                ):
                    texts[id(node)] = self._grouped(node.left, self._of_expert(node.right), "", texts)
                elif (
                    isinstance(node, ast.BinOp)
                    and isinstance(node.op, ast.Add)
                    and self._of_expert(node.right)
                ):
                    texts[id(node.right)] = self._bias(self._of_expert(node.right))
        if not self.stack:
            raise Unfit("no product with the stacked weights of the experts was found")
        return texts

    def _linear(self, node: ast.Call, texts: dict[int, str]) -> None:
        weight = self._of_expert(node.args[1])
        if not weight or node.keywords or len(node.args) > 3:
            raise Unfit("a linear layer in the loop over experts is not of stacked weights")
        text = self._grouped(node.args[0], weight, ".transpose(1, 2)", texts)
        if len(node.args) == 3:
            bias = self._of_expert(node.args[2])
            if not bias:
                raise Unfit("a bias in the loop over experts is not of stacked biases")
            text = f"({text} + {self._bias(bias)})"
        texts[id(node)] = text

    def _of_expert(self, node: ast.expr) -> str:
        """self.x of self.x[expert_idx], "" for anything else."""
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == self.loop.expert:
            held = ast.unparse(node.value)
            if not held.startswith("self.") or held.count(".") != 1:
                return ""
            built = self.place.unit.built(held.removeprefix("self."))
            if built is not None and built.op == "call" and built.name.endswith("List"):
                raise Unfit(f"{held} is a list with a weight for each expert: {_STACKED}")
            return held
        return ""

    def _grouped(self, x: ast.expr, weight: str, turned: str, texts: dict[int, str]) -> str:
        self.stack = self.stack or weight
        inner = {**texts, **{id(node): self.permuted for node in self._gathered}}
        given = self.place.statements.rewritten(x, inner, "")
        given = given if given.isidentifier() else f"({given})"
        return call(
            "torch_npu.npu_grouped_matmul",
            f"[{given}.to({self.dtype})]",
            f"[{weight}{turned}.to({self.dtype})]",
            f"group_list={self.counts}",
            "split_item=3",
            "group_type=0",
            "group_list_type=1",
        ) + "[0]"  # fmt: skip

    def _bias(self, bias: str) -> str:
        rows = f"{self.permuted}.shape[0]"
        return f"{bias}.repeat_interleave({self.counts}, dim=0, output_size={rows}).to({self.dtype})"

    def _before(self) -> list[str]:
        torch, routing = self.place.in_function, self.place.text(self.loop.routing)
        device = f"{self.tokens}.device"
        lines = [
            f"{self.dtype} = {self.tokens}.dtype",
            f"if {torch('is_autocast_enabled')}({device}.type):",
            f"    {self.dtype} = {torch('get_autocast_dtype')}({device}.type)",
            f"{self.indices}, {self.probs} = {routing}, {self.weights}",
        ]
        if self.loop.spare:
            spare = self.place.fresh("is_spare")
            beyond = f"{self.indices} >= {self.stack}.shape[0]"
            lines += [
                f"{spare} = ({beyond}) | ({self.indices} < 0)" if self.loop.count else f"{spare} = {beyond}",
                f"{self.indices} = {self.indices}.masked_fill({spare}, 0)",
                f"{self.probs} = {self.probs}.masked_fill({spare}, 0)",
            ]
        return [
            *lines,
            f"{self.counts} = {torch('nn.functional.one_hot')}({self.indices}.flatten(), {self.stack}.shape[0]).sum(0)",
            f"{self.permuted}, {self.order} = torch_npu.npu_moe_token_permute({self.tokens}, {self.indices})",
        ]

    def _after(self, texts: dict[int, str]) -> list[str]:
        """The unpermutation in place of index_add_, in the dtype of what was gathered into."""
        states = self.loop.gather.args[2]
        while (
            isinstance(states, ast.Call)
            and isinstance(states.func, ast.Attribute)
            and states.func.attr == "to"
        ):
            states = states.func.value
        text = self.place.statements.rewritten(states, texts, "")
        self._check(text)
        name = self.place.fresh("expert_states")
        result = call(
            "torch_npu.npu_moe_token_unpermute", name, self.order, f"probs={self.probs}.to({name}.dtype)"
        )
        return [f"{name} = {text}", *f"{self.loop.into} = {result}.to({self.tokens}.dtype)".split("\n")]

    def _written(self, item: ast.stmt, texts: dict[int, str]) -> list[str]:
        """The lines of a statement of the body, at the place of the loop."""
        margin = self.place.statements.margin(item)
        text = self.place.statements.rewritten(item, texts, margin).replace(f"\n{margin}", "\n")
        self._check(text)
        text = indented_by(text, STEP, self.place.statements.step(item))
        is_idle = isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == text.partition(" = ")[2]
        return [] if is_idle else text.split("\n")

    def _check(self, text: str) -> None:
        """Nothing that counts experts or tokens may be left."""
        left = names(ast.parse(text))[0] & {self.loop.expert, self.loop.token, self.loop.slot}
        if left:
            raise Unfit(f"the loop over experts uses {' and '.join(sorted(left))} in another way")
