"""Graph to code that runs."""

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.codegen":
    raise ImportError(f"this package is gradof.codegen; it was imported as {__name__}")
