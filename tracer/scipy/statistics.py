"""scipy.stats: summary statistics, from scipy's own code."""

from __future__ import annotations

from gradof.tracer.scipy.twins import through

through(*(f"scipy.stats.{name}" for name in """
    zscore zmap gzscore gmean hmean pmean skew kurtosis moment sem variation tmean tvar tstd tsem
    trim_mean gstd entropy circmean circvar circstd
    pearsonr linregress ttest_1samp ttest_ind ttest_rel f_oneway chisquare
    power_divergence bartlett levene jarque_bera skewtest kurtosistest normaltest theilslopes
    differential_entropy kstat kstatvar wasserstein_distance energy_distance
    median_abs_deviation
""".split()))
