"""scipy's modules, under the names that code for autograd imports."""
