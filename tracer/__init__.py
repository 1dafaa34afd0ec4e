"""Python call to graph, for torch and for numpy."""

if __name__ != "gradof.tracer":  # a second copy of these modules would have a second set of classes
    raise ImportError(f"this package is gradof.tracer; it was imported as {__name__}")
