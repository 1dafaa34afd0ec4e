"""Which nodes of a graph are computed together, by one loop nest each."""
