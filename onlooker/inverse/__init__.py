"""Chains that sample exp(βR): one file per inverse learner."""

from onlooker.inverse.active import active
from onlooker.inverse.base import Info, InverseLearner, PoolInfo
from onlooker.inverse.classical import classical
from onlooker.inverse.confine import ball, fade, nowhere
from onlooker.inverse.multikernel import Reset, listing_reset, multikernel
from onlooker.inverse.naive import naive
from onlooker.inverse.nonreversible import nonreversible
from onlooker.inverse.passive import passive
from onlooker.inverse.reweighted import reweighted

__all__ = [
    "Info",
    "InverseLearner",
    "PoolInfo",
    "Reset",
    "active",
    "ball",
    "classical",
    "fade",
    "listing_reset",
    "multikernel",
    "naive",
    "nonreversible",
    "nowhere",
    "passive",
    "reweighted",
]
