"""What a kernel profile says about candidates: sequences of kernels that their ops take the place of."""
