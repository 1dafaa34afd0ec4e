"""How one op of a graph is called in numpy or in torch."""
