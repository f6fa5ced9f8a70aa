"""The npu:: ops of torch_npu, and the targets that provide them."""
