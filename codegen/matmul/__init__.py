"""Products of matrices as native code."""
