"""Graph to graph: the same values by ops that fewer passes over a device's memory compute."""
