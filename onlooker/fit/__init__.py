"""Between the points: rewards and gradients fitted to what was seen."""

from onlooker.fit.potential import FITS, Potential, Reward, begin, fit, kind_for
from onlooker.fit.sums import FitKind, Sums

__all__ = ["FITS", "FitKind", "Potential", "Reward", "Sums", "begin", "fit", "kind_for"]
