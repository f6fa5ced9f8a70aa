"""Reading Python source without running it: files, classes, and what each function computes, as values."""
