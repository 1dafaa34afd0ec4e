"""Who computes a graph, and the passes that each wants: `choose`, `target`, `passes`."""
