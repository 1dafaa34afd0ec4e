"""Passes over loop nests: LoopNest → LoopNest, each of them the same meaning."""
