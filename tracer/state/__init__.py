"""Python's state around a traced run: what it reads, what it writes, and where that is."""
