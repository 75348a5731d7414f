"""The examples with real learners, on a small budget: recorded, reconstructed, right."""

import sys
from pathlib import Path

import numpy as np
import pytest

import onlooker

pytestmark = pytest.mark.usefixtures("promotion_allowed")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

SIMPLE = ("log-density", "mean way")


def check(numbers, spearman, pearson):
    assert numbers["Spearman, R̂"] >= spearman
    assert numbers["Pearson, R̂"] >= pearson
    for name in SIMPLE:
        assert numbers[f"Spearman, {name}"] <= numbers["Spearman, R̂"] - 0.1
        assert numbers[f"Pearson, {name}"] <= numbers["Pearson, R̂"] - 0.1


def test_cartpole_learns_and_is_recorded(tmp_path):
    """The reconstruction, half a minute, is left to the slow tests."""
    import cartpole

    with onlooker.LogWriter(tmp_path / "log") as log:
        cartpole.train(log, agents=4, steps=3, random=np.random.default_rng(0))
    seen = onlooker.read_log(tmp_path / "log")
    assert len(np.unique(seen.agents)) == 4
    assert seen.gradients.shape[1] == 4
    assert 8 <= len(seen) <= 12  # Who has learnt it stops.


@pytest.mark.slow
def test_cartpole(tmp_path):
    import cartpole

    numbers = cartpole.main(str(tmp_path / "cartpole.png"), agents=200, steps=5, held_out=200, rollouts=100)
    check(numbers, 0.93, 0.95)
    assert numbers["rms error of R̂ less its free constant"] < 0.35 * numbers["standard deviation of the returns"]
    assert (tmp_path / "cartpole.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_in_full(tmp_path, seed):
    import cartpole

    check(cartpole.main(str(tmp_path / "cartpole.png"), seed=seed), 0.9, 0.95)


@pytest.mark.slow
def test_explain(tmp_path):
    import explain

    numbers = explain.main(str(tmp_path / "explain.png"))
    assert abs(numbers["goal"] - 8) < 4.5 * numbers["error"] < 2
    assert numbers["misfit"] > 5
    assert numbers["earned"] > 0.95 * numbers["best"]
    assert numbers["jumps"] == 1
    assert (tmp_path / "explain.png").stat().st_size > 10_000


def test_clients(tmp_path):
    import clients

    numbers = clients.main(str(tmp_path / "clients.png"), starts=25, steps=60)
    for name in ("all clients", "Nesterov's steps alone"):
        assert numbers[f"rms error, {name}"] < 0.4
        assert numbers[f"correlation, {name}"] > 0.98
    assert numbers["explored, all clients"] > 0.7
    assert (tmp_path / "clients.png").stat().st_size > 10_000
