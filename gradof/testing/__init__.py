"""The harness: gradients of a function against torch, float64 and finite differences."""
