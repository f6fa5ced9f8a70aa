"""Target npu-dry: the real torch_npu wheel on a stand-in for CANN that computes nothing."""
