"""Chains that sample exp(βR): one file per inverse learner."""

from onlooker.inverse.base import Info, InverseLearner
from onlooker.inverse.classical import classical
from onlooker.inverse.confine import ball, fade, nowhere
from onlooker.inverse.naive import naive
from onlooker.inverse.nonreversible import nonreversible
from onlooker.inverse.passive import passive
from onlooker.inverse.reweighted import reweighted

__all__ = [
    "Info",
    "InverseLearner",
    "ball",
    "classical",
    "fade",
    "naive",
    "nonreversible",
    "nowhere",
    "passive",
    "reweighted",
]
