"""Graph to code that runs."""

if __name__ != "gradof.codegen":  # a second copy of these modules would have a second set of classes
    raise ImportError(f"this package is gradof.codegen; it was imported as {__name__}")
