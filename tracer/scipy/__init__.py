"""Functions of scipy on traced arrays: how their calls are caught, and what they record."""
