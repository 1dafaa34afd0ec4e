"""A graph of small arrays as one native function: `support`, `schedule`, `emit`, `function`."""
