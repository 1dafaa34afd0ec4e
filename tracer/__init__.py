"""Python call to graph, for torch and for numpy."""

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.tracer":
    raise ImportError(f"this package is gradof.tracer; it was imported as {__name__}")
