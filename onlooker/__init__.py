"""Watch gradient learners and reconstruct the reward they maximise."""

from onlooker.coordinates import Coordinates, softmax, spherical
from onlooker.density import Density, standard_normal
from onlooker.field.memory import binned, reservoir, ring
from onlooker.inverse import (
    FieldInfo,
    Info,
    InverseLearner,
    PoolInfo,
    active,
    ball,
    classical,
    corrected,
    multikernel,
    naive,
    nonreversible,
    on_policies,
    passive,
    replay,
    reweighted,
)
from onlooker.observe.log import Log, open_log, read_log
from onlooker.observe.observation import Observation, Observations, observe
from onlooker.observe.optimiser import Optimiser
from onlooker.observe.stream import Stream, oracle, pooled, recorded
from onlooker.observe.writer import LogWriter
from onlooker.observer import Observer
from onlooker.reconstruct import reconstruct
from onlooker.reconstruction import Reconstruction, load
from onlooker.reward.accumulate import Grid, Histogram, Marginals
from onlooker.reward.distances import total_variation, wasserstein
from onlooker.reward.estimate import RewardEstimate
from onlooker.run import Chains, run
from onlooker.warning import OnlookerWarning

__version__ = "0.1.0"

__all__ = [
    "Chains",
    "Coordinates",
    "Density",
    "FieldInfo",
    "Grid",
    "Histogram",
    "Info",
    "InverseLearner",
    "Log",
    "LogWriter",
    "Marginals",
    "Observation",
    "Observations",
    "Observer",
    "OnlookerWarning",
    "Optimiser",
    "PoolInfo",
    "Reconstruction",
    "RewardEstimate",
    "Stream",
    "active",
    "ball",
    "binned",
    "classical",
    "corrected",
    "load",
    "multikernel",
    "naive",
    "nonreversible",
    "observe",
    "on_policies",
    "open_log",
    "oracle",
    "passive",
    "pooled",
    "read_log",
    "reconstruct",
    "recorded",
    "replay",
    "reservoir",
    "reweighted",
    "ring",
    "run",
    "softmax",
    "spherical",
    "standard_normal",
    "total_variation",
    "wasserstein",
]
