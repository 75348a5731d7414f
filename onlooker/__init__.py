"""Watch gradient learners and reconstruct the reward they maximise."""

from onlooker.density import Density, standard_normal
from onlooker.inverse import (
    Info,
    InverseLearner,
    ball,
    classical,
    naive,
    nonreversible,
    passive,
    reweighted,
)
from onlooker.observe.observation import Observation, Observations, observe
from onlooker.observe.stream import Stream, recorded
from onlooker.reconstruct import Reconstruction, reconstruct
from onlooker.reward.accumulate import Grid, Histogram, Marginals
from onlooker.reward.distances import total_variation, wasserstein
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run

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
    "Reconstruction",
    "RewardEstimate",
    "Stream",
    "ball",
    "classical",
    "naive",
    "nonreversible",
    "observe",
    "passive",
    "reconstruct",
    "recorded",
    "reweighted",
    "run",
    "standard_normal",
    "total_variation",
    "wasserstein",
]
