"""scipy.stats: summary statistics, from scipy's own code."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.twins import stand_in, through, twin_of_private

_STATS = "scipy.stats._stats_py"

through(*(f"scipy.stats.{name}" for name in """
    zscore zmap gzscore gmean hmean pmean skew kurtosis moment sem variation tmean tvar tstd tsem
    trim_mean gstd entropy circmean circvar circstd
    pearsonr linregress ttest_1samp ttest_ind ttest_rel f_oneway chisquare
    power_divergence bartlett levene jarque_bera skewtest kurtosistest normaltest theilslopes
    differential_entropy kstat kstatvar wasserstein_distance energy_distance
    median_abs_deviation
""".split()))
_variance = twin_of_private(_STATS, "_xp_var")


@stand_in(_STATS, "_xp_var")
def _xp_var(x: Any, /, *, nan_policy: str = "propagate", **options: Any) -> Any:
    """A variance without what is nan, whose gradient scipy's own code would make nan."""
    if nan_policy != "omit":
        return _variance(x, nan_policy=nan_policy, **options)
    axis, freedom, keep = (options.get(n) for n in ("axis", "correction", "keepdims"))
    return np.nanvar(as_array(x), axis=axis, ddof=freedom or 0, keepdims=bool(keep))
