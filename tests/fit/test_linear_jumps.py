"""Jumps of the weights are noticed soon, and seldom where there is none."""

import numpy as np

from onlooker.fit.linear import begin_linear
from onlooker.fit.linear_jumps import SETTINGS, WeightWatch
from tests.fit.test_linear import K, W, world


def watched(seed, later=None, rows=240, jump=120):
    """The jumps found in a stream of eight agents, whose weights are ``later`` from row ``jump`` on."""
    jacobians, gradients, agents, times = world(seed, agents=8, steps=rows // 8)
    order = np.lexsort((agents, times))
    jacobians, gradients = jacobians[:, order], gradients[order]
    if later is not None:
        gradients[jump:] += np.einsum("nkd,k->nd", jacobians[0, jump:], np.asarray(later) - W)
    sums, watch = begin_linear(jacobians[:, :64], gradients[:64]), WeightWatch(K)
    for first in range(0, rows, SETTINGS.every):
        rows_now = slice(first, first + SETTINGS.every)
        sums.add(jacobians[:, rows_now], gradients[rows_now], agents[order][rows_now])
        watch.look(sums)
    return watch.jumps


def test_no_jump_is_seen_where_there_is_none():
    """At a level of 1 %, 3 of 40 streams or more have an alarm once in a hundred times."""
    assert sum(bool(watched(seed)) for seed in range(40)) < 3


def test_a_jump_is_seen_and_dated():
    found = [watched(seed, later=[1.0, 1.0, -1.0]) for seed in range(20)]
    assert all(len(jumps) == 1 for jumps in found)
    assert np.median([jumps[0].found for jumps in found]) <= 120 + 4 * SETTINGS.every
    assert np.median([abs(jumps[0].at - 120) for jumps in found]) <= 2 * SETTINGS.every
