"""Finding loops in a graph: `find` (periods), `match` (what repeats exactly), `build` (a Loop)."""
