"""Chains that sample exp(βR): one file per inverse learner."""

from onlooker.inverse.active import active
from onlooker.inverse.base import FieldInfo, Info, InverseLearner, PoolInfo
from onlooker.inverse.classical import classical
from onlooker.inverse.confine import ball, fade, fold, nowhere
from onlooker.inverse.correct import corrected
from onlooker.inverse.multikernel import Reset, listing_reset, multikernel
from onlooker.inverse.naive import naive
from onlooker.inverse.nonreversible import nonreversible
from onlooker.inverse.passive import passive
from onlooker.inverse.replay import remembered, replay
from onlooker.inverse.reweighted import reweighted
from onlooker.inverse.simplex import on_policies

__all__ = [
    "FieldInfo",
    "Info",
    "InverseLearner",
    "PoolInfo",
    "Reset",
    "active",
    "ball",
    "classical",
    "corrected",
    "fade",
    "fold",
    "listing_reset",
    "multikernel",
    "naive",
    "nonreversible",
    "nowhere",
    "on_policies",
    "passive",
    "remembered",
    "replay",
    "reweighted",
]
