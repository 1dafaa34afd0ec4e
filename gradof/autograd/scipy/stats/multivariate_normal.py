"""The functions of `scipy.stats.multivariate_normal`, as code for autograd imports them."""

from scipy.stats import multivariate_normal as _distribution

_NAMES = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "entropy", "rvs")
globals().update({n: getattr(_distribution, n) for n in _NAMES if hasattr(_distribution, n)})
