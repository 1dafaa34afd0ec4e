"""Graph to gradient: the reverse transform and the split into f and df."""

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.autodiff":
    raise ImportError(f"this package is gradof.autodiff; it was imported as {__name__}")
