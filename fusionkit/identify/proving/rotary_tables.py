"""cos and sin for a rotation: as the file's own embedding class makes them, or made here in a told layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.identify.proving.configurations import small_configs
from fusionkit.identify.proving.setting import Setting

Tensor = torch.Tensor


def tables(setting: Setting) -> tuple[Tensor, Tensor]:
    """cos and sin, float32. Raises LookupError where the file's own class was asked for and there is none."""
    if "tables" not in setting.kept:
        made = _own(setting) if setting.manner.tables == "own" else _made(setting, setting.manner.tables)
        setting.kept["tables"] = made
        if setting.manner.tables == "own" and setting.site.op == "npu_rotary_mul":
            hazards = setting.site.hazards
            wider = 2 if {"rope_partial", "rope_half_width_cos_sin"} & set(hazards) else 1
            setting.kept["head_dim"] = made[0].shape[-1] * wider
    held: tuple[Tensor, Tensor] = setting.kept["tables"]
    return held


def complex_table(setting: Setting) -> Tensor:
    """cos + i sin, half as wide as the rotated dim, with the axes S D/2 (or B S D/2)."""
    told = setting.manner.tables
    cos, sin = _made(setting, "S h" if told == "own" else f"{told.rpartition(' ')[0]} h")
    return torch.complex(cos, sin)


def frequencies(setting: Setting) -> Any:
    """What goes by the name of freqs: complex where the code multiplies so, else the pair (cos, sin)."""
    hazards = setting.site.hazards
    if "rope_complex" in hazards and "rope_interleave" not in hazards:
        return complex_table(setting)
    return interleaved(setting) if setting.manner.tables == "own" else tables(setting)


def interleaved(setting: Setting) -> tuple[Tensor, Tensor]:
    """cos and sin [S, D] with equal neighbours, as diffusers' get_1d_rotary_pos_embed makes them."""
    cos, sin = _made(setting, "S h")
    return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)


def by_position(setting: Setting) -> tuple[Tensor, Tensor]:
    """cos and sin [1, S, 1, D] with equal neighbours, as diffusers' video models make them for [B, S, H, D]."""
    cos, sin = interleaved(setting)
    return cos[None, :, None], sin[None, :, None]


def halves(setting: Setting) -> tuple[Tensor, Tensor]:
    """cos and sin [S, D] with equal halves."""
    return _made(setting, "S D")


def angles(setting: Setting) -> Tensor:
    """The angles themselves, [S, D] with equal halves or neighbours."""
    cos, sin = _made(setting, "S D")
    return torch.atan2(sin, cos)


def _made(setting: Setting, axes: str) -> tuple[Tensor, Tensor]:
    """Random angles with the given axes; h stands for half the head: full width repeats the half in the last dim."""
    *leading, last = axes.split()
    width = setting.shape(["D" if last == "h" else last])[0] // setting.rotated_share // 2
    shape = (*setting.shape(leading), width)
    angles = torch.rand(shape, generator=setting.generator) * 6.0 - 3.0
    cos, sin = angles.cos(), angles.sin()
    if last == "h":
        return cos, sin
    if "rope_interleave" in setting.site.hazards:
        return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)


def _own(setting: Setting) -> tuple[Tensor, Tensor]:
    for made in _own_results(setting):
        if isinstance(made, tuple) and len(made) == 2 and all(isinstance(t, Tensor) for t in made):
            return made[0].detach().float(), made[1].detach().float()
    raise LookupError("the file has no rotary embedding class that gives cos and sin")


def _own_results(setting: Setting) -> Iterator[Any]:
    positions = torch.arange(3, 3 + setting.length).expand(setting.batch, -1)
    x = setting.tensor("B S C")
    held: dict[str, Any] = {n: v for n, v in vars(setting.module).items() if n.endswith("RotaryEmbedding")}
    for name, cls in held.items():
        for config in small_configs(setting.module, setting.source, name, setting.sizes):
            try:
                yield cls(config)(x, positions)
            except USER_CODE_ERRORS:
                continue
            break
