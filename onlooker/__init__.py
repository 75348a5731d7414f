"""Watch gradient learners and reconstruct the reward they maximise."""

from onlooker.density import Density, standard_normal
from onlooker.inverse import (
    Info,
    InverseLearner,
    PoolInfo,
    active,
    ball,
    classical,
    multikernel,
    naive,
    nonreversible,
    passive,
    reweighted,
)
from onlooker.observe.observation import Observation, Observations, observe
from onlooker.observe.stream import Stream, oracle, pooled, recorded
from onlooker.reconstruct import Reconstruction, reconstruct
from onlooker.reward.accumulate import Grid, Histogram, Marginals
from onlooker.reward.distances import total_variation, wasserstein
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, OnlookerWarning, run

__version__ = "0.1.0"

__all__ = [
    "Chains",
    "Density",
    "Grid",
    "Histogram",
    "Info",
    "InverseLearner",
    "Marginals",
    "Observation",
    "Observations",
    "OnlookerWarning",
    "PoolInfo",
    "Reconstruction",
    "RewardEstimate",
    "Stream",
    "active",
    "ball",
    "classical",
    "multikernel",
    "naive",
    "nonreversible",
    "observe",
    "oracle",
    "passive",
    "pooled",
    "reconstruct",
    "recorded",
    "reweighted",
    "run",
    "standard_normal",
    "total_variation",
    "wasserstein",
]
