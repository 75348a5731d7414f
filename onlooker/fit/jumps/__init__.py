"""Jumps of the reward: a statistic, a prediction to compare gradients with, and a detector that combines the two."""

from onlooker.fit.jumps.detector import JumpDetector
from onlooker.fit.jumps.expected import fit_expected
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.jumps.watch import JumpWatch

__all__ = ["Jump", "JumpDetector", "JumpWatch", "fit_expected"]
