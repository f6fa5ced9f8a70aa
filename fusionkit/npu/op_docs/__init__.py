"""torch_npu's API from the wheel's documentation, which is read, not imported."""
