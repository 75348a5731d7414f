"""Whole agents are held out by their names, the same offline, live and in a log; else stretches of rows."""

from dataclasses import replace

import numpy as np

import onlooker
from onlooker.data.observations import Observations
from onlooker.data.splits import agents_held_out, held_out

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.standard_normal((4000, 2))
NAMES = np.array([f"agent {number}" for number in RANDOM.integers(0, 200, 4000)])
SEEN = Observations(POINTS, -POINTS, NAMES)


def test_whole_agents_are_held_out():
    held = held_out(SEEN)
    assert 0.12 < held.mean() < 0.28
    assert set(NAMES[held]).isdisjoint(NAMES[~held])
    # An agent is on the same side, whichever others were seen; another seed holds out others.
    some = NAMES > "agent 3"
    assert (held_out(Observations(POINTS[some], -POINTS[some], NAMES[some])) == held[some]).all()
    assert (held_out(SEEN, seed=1) != held).any()


def test_offline_live_and_from_a_log_the_same_agents_are_held_out(tmp_path):
    live = onlooker.Observer(dim=2, seed=3)
    live.learn_many(POINTS, -POINTS, NAMES)
    with onlooker.LogWriter(tmp_path / "log") as log:
        for first in range(0, 4000, 1000):
            rows = slice(first, first + 1000)
            log.add_many(POINTS[rows], -POINTS[rows], agents=NAMES[rows])
    read = onlooker.read_log(tmp_path / "log")
    from_log = onlooker.Observer(dim=2, seed=3)
    from_log.learn_log(tmp_path / "log")
    expected = held_out(SEEN, seed=3)
    assert read.agents.dtype.kind == "i"
    for held in (held_out(read, seed=3), live._rows.recent.held, from_log._rows.recent.held):
        assert (held == expected).all()


def test_an_agent_is_the_same_by_any_type_of_its_name():
    numbers = np.arange(200)
    names = numbers.astype(str)
    for agents in (numbers.astype(float), names, numbers.astype(np.int16)):
        assert np.array_equal(agents_held_out(agents, 0), agents_held_out(numbers, 0))
    assert np.array_equal(agents_held_out(numbers, 0, names), agents_held_out(numbers, 0))
    # Names that are not whole numbers are taken as they are.
    assert len(agents_held_out(numbers + 0.5, 0)) == 200


def test_stretches_are_held_out_where_agents_cannot_be():
    for agents in (None, np.zeros(4000, int), np.arange(4000) < 3950):
        held = held_out(replace(SEEN, agents=agents))
        assert 0.15 < held.mean() < 0.25
        # Few places where a held-out row has a neighbour that is not.
        assert np.count_nonzero(np.diff(held)) < 30
