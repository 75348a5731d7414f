"""Chains over a stream: the loop, what it counts, its diagnostics and its checkpoints.

The call itself is `onlooker.engine.run.run`, or `onlooker.run`.
"""

from onlooker.engine.accumulators import Grid, Marginals
from onlooker.engine.chains import Chains

__all__ = ["Chains", "Grid", "Marginals"]
