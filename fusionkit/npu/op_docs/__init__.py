"""torch_npu's API as its wheel documents it: read, never imported or run."""
