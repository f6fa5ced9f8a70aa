"""Addresses of the online documents: a page where its name is known, else the folder."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from fusionkit.npu.op_docs.online import KNOWN_PAGES, online_folder, online_page

BASE = "https://gitcode.com/Ascend/op-plugin/blob/master/docs/zh/custom_APIs"
TREE = BASE.replace("/blob/", "/tree/")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("npu_gelu", f"{BASE}/torch_npu/torch_npu-npu_gelu.md"),
        ("npu_rms_norm", f"{BASE}/torch_npu/（beta）torch_npu-npu_rms_norm.md"),
        ("npu_apply_rotary_pos_emb", f"{BASE}/torch_npu/torch_npu-apply_rotary_pos_emb.md"),
        ("optim.NpuFusedAdamW", f"{BASE}/torch_npu-optim/torch_npu-optim-NpuFusedAdamW.md"),
        ("npu_geglu", f"{TREE}/torch_npu"),
        ("contrib.Swish", f"{TREE}/torch_npu-contrib"),
        ("atb.npu_ring_mla", f"{TREE}/torch_npu"),
        ("anything", f"{TREE}/torch_npu"),
    ],
)
def test_addresses(name, address):
    assert unquote(online_page(name)) == address
    assert online_page(name).isascii()


def test_a_page_lies_in_its_folder():
    for name in KNOWN_PAGES:
        assert online_page(name).replace("/blob/", "/tree/").startswith(online_folder(name) + "/")


def test_no_op_is_known_under_two_pages():
    pages = [online_page(name) for name in KNOWN_PAGES]
    assert len(set(pages)) == len(pages)
