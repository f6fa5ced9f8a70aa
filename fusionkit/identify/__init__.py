"""Stage one of fusion-op replacement: find what torch_npu's fused ops can replace, and prove it before anyone reads it."""
