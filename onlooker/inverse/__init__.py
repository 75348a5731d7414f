"""Chains that sample exp(βR): one file per inverse learner."""

from typing import Any

from onlooker.inverse.active import active
from onlooker.inverse.base import FieldInfo, Info, InverseLearner, PoolInfo
from onlooker.inverse.classical import classical
from onlooker.inverse.confine import ball, fold, nowhere
from onlooker.inverse.moved import from_paper
from onlooker.inverse.multikernel import multikernel
from onlooker.inverse.noise_correction import corrected
from onlooker.inverse.nonreversible import nonreversible
from onlooker.inverse.on_policies import on_policies
from onlooker.inverse.passive import passive
from onlooker.inverse.replay import remembered, replay
from onlooker.inverse.reweighted import reweighted

__all__ = [
    "FieldInfo",
    "Info",
    "InverseLearner",
    "PoolInfo",
    "active",
    "ball",
    "classical",
    "corrected",
    "fold",
    "multikernel",
    "nonreversible",
    "nowhere",
    "on_policies",
    "passive",
    "remembered",
    "replay",
    "reweighted",
]

# The module of `onlooker.paper` that each name of version 0.1 is in now.
_MOVED = {"Reset": "listing", "fade": "errata", "listing_reset": "listing", "naive": "naive"}


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        return from_paper(name, _MOVED[name], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
