"""Loop nests as numpy over tiles of rows, small enough for the cache."""
