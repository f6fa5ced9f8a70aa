"""The addresses of torch_npu's online API documents."""

from __future__ import annotations

from urllib.parse import quote

FOLDER = "https://gitcode.com/Ascend/op-plugin/tree/master/docs/zh/custom_APIs"
_FILES = FOLDER.replace("/tree/", "/blob/")

# Ops whose page is named "torch_npu-NAME.md", and those whose page is named "（beta）torch_npu-NAME.md" (the folder
# and its torch_npu_list.md in the repository of op-plugin, as of torch_npu 2.13).
_PLAIN_PAGES = """
    batch_norm_reduce empty_with_swapped_memory erase_stream get_device_limit get_stream_limit matmul_checksum
    npu_add_quant_gmm_ npu_add_quant_matmul_ npu_add_rms_norm npu_add_rms_norm_cast
    npu_add_rms_norm_dynamic_mx_quant npu_add_rms_norm_dynamic_quant npu_add_rms_norm_quant npu_add_rms_norm_v2
    npu_advance_step_flashattn npu_all_gather_base_mm npu_all_gather_quant_mm npu_all_to_all_matmul
    npu_all_to_all_quant_matmul npu_alltoallv_gmm npu_alltoallv_quant_gmm npu_anti_mx_quant npu_anti_quant
    npu_apply_adam_w npu_attention_to_ffn npu_attention_update npu_block_sparse_attention
    npu_chunk_gated_delta_rule npu_clipped_swiglu npu_convert_weight_to_int4pack npu_cross_entropy_loss
    npu_dense_lightning_indexer_grad_kl_loss npu_dense_lightning_indexer_softmax_lse npu_dequant_swiglu_quant
    npu_dual_level_quant_matmul npu_dynamic_block_mx_quant npu_dynamic_block_quant
    npu_dynamic_dual_level_mx_quant npu_dynamic_mx_quant npu_dynamic_mx_quant_with_dual_axis npu_dynamic_quant
    npu_dynamic_quant_asymmetric npu_fast_gelu npu_ffn npu_ffn_to_attention npu_fused_causal_conv1d
    npu_fused_cross_entropy_loss_with_max_sum npu_fused_floyd_attention npu_fused_infer_attention_score
    npu_fused_infer_attention_score_v2 npu_fused_linear_cross_entropy_loss_with_max_sum_backward
    npu_fused_linear_online_max_sum npu_fused_matmul npu_fusion_attention npu_fusion_attention_v2
    npu_fusion_attention_v3 npu_gather_sparse_index npu_gelu npu_gelu_mul npu_gelu_quant npu_gmm_alltoallv
    npu_group_norm_silu npu_group_norm_swish npu_group_quant npu_grouped_dynamic_block_quant
    npu_grouped_dynamic_mx_quant npu_grouped_matmul npu_grouped_matmul_add npu_grouped_matmul_swiglu_quant_v2
    npu_incre_flash_attention npu_interleave_rope npu_kv_quant_sparse_flash_attention npu_kv_rmsnorm_rope_cache
    npu_lightning_indexer npu_mla_prolog npu_mla_prolog_v2 npu_mla_prolog_v3 npu_mm_all_reduce_base
    npu_mm_reduce_scatter_base npu_moe_compute_expert_tokens npu_moe_distribute_combine
    npu_moe_distribute_combine_add_rms_norm npu_moe_distribute_combine_v2 npu_moe_distribute_dispatch
    npu_moe_distribute_dispatch_v2 npu_moe_finalize_routing npu_moe_gating_top_k npu_moe_gating_top_k_softmax
    npu_moe_init_routing npu_moe_init_routing_v2 npu_moe_re_routing npu_moe_token_permute npu_moe_update_expert
    npu_mrope npu_prefetch npu_prompt_flash_attention npu_quant_lightning_indexer npu_quant_matmul
    npu_quant_matmul_gelu npu_quant_matmul_reduce_sum npu_quant_scatter npu_quant_scatter_ npu_quantize
    npu_recurrent_gated_delta_rule npu_rms_norm_quant npu_rotary_mul npu_rotate_quant npu_scaled_masked_softmax
    npu_scatter_nd_update npu_scatter_nd_update_ npu_scatter_pa_kv_cache npu_sim_exponential_
    npu_sparse_flash_attention npu_sparse_lightning_indexer_grad_kl_loss npu_swiglu_quant npu_top_k_top_p
    npu_top_k_top_p_sample npu_trans_quant_param npu_transpose_batchmatmul npu_weight_quant_batchmatmul
    print_npugraph_tensor save_npugraph_tensor scatter_update scatter_update_ set_device_limit
    optim.NpuFusedAdadelta optim.NpuFusedAdam optim.NpuFusedAdamP optim.NpuFusedAdamW optim.NpuFusedBertAdam
    optim.NpuFusedLamb optim.NpuFusedOptimizerBase optim.NpuFusedRMSprop optim.NpuFusedRMSpropTF
    optim.NpuFusedSGD
"""
_BETA_PAGES = """
    _npu_dropout copy_memory_ empty_with_format fast_gelu npu_alloc_float_status npu_anchor_response_flags
    npu_apply_adam npu_batch_nms npu_bert_apply_adam npu_bmmV2 npu_bounding_box_decode npu_bounding_box_encode
    npu_broadcast npu_ciou npu_clear_float_status npu_confusion_transpose npu_conv2d npu_conv3d
    npu_conv_transpose2d npu_convolution npu_convolution_transpose npu_deformable_conv2d npu_diou
    npu_dropout_with_add_softmax npu_dtype_cast npu_format_cast npu_format_cast_ npu_fused_attention_score
    npu_get_float_status npu_giou npu_grid_assign_positive npu_gru npu_indexing npu_iou npu_layer_norm_eval
    npu_linear npu_lstm npu_max npu_min npu_mish npu_multi_head_attention npu_nms_rotated npu_nms_v4
    npu_nms_with_mask npu_one_hot npu_pad npu_ps_roi_pooling npu_ptiou npu_random_choice_with_mask npu_reshape
    npu_rms_norm npu_roi_align npu_rotated_iou npu_rotated_overlaps npu_sign_bits_pack npu_sign_bits_unpack
    npu_silu npu_slice npu_softmax_cross_entropy_with_logits npu_sort_v2 npu_swiglu npu_transpose
    npu_yolo_boxes_encode one_
"""
# Pages with other names.
_NAMED = {"npu_apply_rotary_pos_emb": "torch_npu-apply_rotary_pos_emb.md"}

_BETA = frozenset(_BETA_PAGES.split())
KNOWN_PAGES = frozenset((*_PLAIN_PAGES.split(), *_BETA, *_NAMED))


def online_folder(name: str) -> str:
    """The address of the folder with the page of a name below torch_npu ("optim.NpuFusedAdamW")."""
    part, dot, _ = name.partition(".")
    return f"{FOLDER}/torch_npu-{part}" if dot and part in ("optim", "contrib") else f"{FOLDER}/torch_npu"


def online_page(name: str) -> str:
    """The address of the page of a name below torch_npu, or of its folder if the page is unknown."""
    folder = online_folder(name)
    if name not in KNOWN_PAGES:
        return folder
    file = _NAMED.get(name, f"{'（beta）' if name in _BETA else ''}torch_npu-{name.replace('.', '-')}.md")
    return f"{_FILES}{folder.removeprefix(FOLDER)}/{quote(file)}"
