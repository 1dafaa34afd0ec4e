"""Loop nests as native code, through llvmlite (extra `native`); used where it is installed."""
