"""The call of npu_fusion_attention: its layout, its mask that drops, and the dtype that autocast would choose."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.identify.replacing.place import Place, call

# Letter of the layout -> dimension
_AXES = {"BNSD": {"N": 1, "S": 2}, "BSND": {"S": 1, "N": 2}}

TEMPLATE_SIZE = 2048  # of sparse modes 2 to 4, whatever the lengths are: op-plugin docs, npu_fusion_attention
CAUSAL = "2"  # the sparse mode aligned at the top left, as scaled_dot_product_attention's is_causal is

MASK_NOTE = "a float mask is read as a boolean one, below 0 drops: a mask that holds a bias is not for the fused branch"
WEIGHTS_NOTE = "the fused branch returns None for the attention weights"
EMPTY_ROW_NOTE = "a row that is masked throughout comes out otherwise than from the original: do not read it"


@dataclass(frozen=True, slots=True)
class Operands:
    """Names of query, key and value, the layout of their dimensions, and the scale as source."""

    query: str
    key: str
    value: str
    layout: str
    scale: str

    def size(self, name: str, letter: str) -> str:
        """The size of a tensor along a letter of the layout, as source."""
        return f"{name}.shape[{_AXES[self.layout][letter]}]"


def dtype_lines(place: Place, operands: Operands, name: str) -> list[str]:
    """The dtype that the original's products run in: autocast knows them, and does not know the fused op."""
    device = f"{operands.query}.device.type"
    asked, given = place.in_function("is_autocast_enabled"), place.in_function("get_autocast_dtype")
    return [f"{name} = {operands.value}.dtype", f"if {asked}({device}):", f"    {name} = {given}({device})"]


def fused_call(operands: Operands, dtype: str, mask: str | None, mode: str = "") -> str:
    """The call, its first output taken. `mode`: the sparse mode as source, the op's default where it is empty."""
    tensors = [f"{name}.to({dtype}).contiguous()" for name in (operands.query, operands.key, operands.value)]
    heads = operands.size(operands.query, "N")
    told = [] if mask is None else [f"atten_mask={mask}"]
    told += [f"sparse_mode={mode}"] if mode else []
    text = call(
        "torch_npu.npu_fusion_attention",
        *tensors,
        heads,
        f'"{operands.layout}"',
        *told,
        f"scale={operands.scale}",
    )
    return f"{text}[0]"


def expanded(operands: Operands, mask: str) -> str:
    """A mask of up to four dimensions as one of the shapes that the op takes: [B, N or 1, Sq, Sk]."""
    sizes = (
        f"{operands.query}.shape[0]",
        "-1",
        operands.size(operands.query, "S"),
        operands.size(operands.key, "S"),
    )
    return f"{mask}.expand({', '.join(sizes)})"


def of_four(mask: str) -> str:
    """A mask with dimensions of one put in front."""
    return f"{mask}[(None,) * (4 - {mask}.dim())]"


def mask_lines(place: Place, operands: Operands, name: str, mask: str) -> list[str]:
    """What turns a mask of scaled_dot_product_attention, boolean or float, or None, into the op's."""
    boolean = place.in_function("bool")
    inner = [
        f"{name} = {name}.logical_not() if {name}.dtype == {boolean} else {name} < 0",
        *shape_lines(operands, name),
    ]
    return [f"{name} = {mask}", f"if {name} is not None:", *(f"    {line}" for line in inner)]


def shape_lines(operands: Operands, name: str) -> list[str]:
    """What gives a mask that drops one of the op's shapes.

    In layout BSND it is one of dispatch_attention_fn, which also takes [B, Skv]: a mask of keys for each sequence.
    """
    of_keys = f"{name}.shape == ({operands.query}.shape[0], {operands.size(operands.key, 'S')})"
    keys = [f"if {of_keys}:", f"    {name} = {name}[:, None, None, :]"]
    return [
        *(keys if operands.layout == "BSND" else []),
        f"{name} = {of_four(name)}",
        f"{name} = {expanded(operands, name)}",
    ]


def template_line(place: Place, operands: Operands, name: str) -> str:
    """The mask that sparse mode 2 wants for every length, made on the query's device."""
    size, torch = TEMPLATE_SIZE, place.in_function
    made = f"{torch('ones')}({size}, {size}, dtype={torch('bool')}, device={operands.query}.device)"
    return f"{name} = {made}.triu(1)"
