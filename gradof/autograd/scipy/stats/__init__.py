"""`scipy.stats`, under the name that code for autograd imports."""

import scipy.stats as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})

from gradof.autograd.scipy.stats import beta as beta  # noqa: E402
from gradof.autograd.scipy.stats import chi2 as chi2  # noqa: E402
from gradof.autograd.scipy.stats import dirichlet as dirichlet  # noqa: E402
from gradof.autograd.scipy.stats import gamma as gamma  # noqa: E402
from gradof.autograd.scipy.stats import multivariate_normal as multivariate_normal  # noqa: E402
from gradof.autograd.scipy.stats import norm as norm  # noqa: E402
from gradof.autograd.scipy.stats import poisson as poisson  # noqa: E402
from gradof.autograd.scipy.stats import t as t  # noqa: E402
