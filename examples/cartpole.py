"""Predict the return of cart-pole policies that no learner tried, from the learners' gradients.

    python examples/cartpole.py [picture.png]      # needs torch and gymnasium; about a minute

A thousand learners, each with its own optimizer, climb the expected return of Gymnasium's unmodified CartPole-v1: one
for every step until the pole or the cart leaves its bounds, at most 500. A policy has four weights θ: in state s it
pushes right with probability σ(θ·s). Onlooker sees the weights and the noisy policy gradients, but no state, action or
return. From these it reconstructs the expected return as a function of the weights.

Policies drawn uniformly from the explored region are then rolled out. Their returns are compared with R̂, and with three
simple scores: the density of the learners' points, the distance along the learners' mean displacement ("mean way"),
and how long the learners near a policy had trained ("training time").

Learners start up to 2.5 away from a policy that pushes in the direction in which the pole falls: some balance it at
once, others drop it at once. Around θ = 0 all would move in the same direction, and the distance along it would rank
policies nearly as well as R̂: Spearman's correlation is then .90, and R̂'s .96.
"""

import sys
import tempfile
from collections.abc import Iterator

import gymnasium
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.spatial import cKDTree
from scipy.special import expit
from scipy.stats import gaussian_kde, pearsonr, spearmanr

import onlooker

# Units of position, velocity, angle and angular velocity in m, m/s, rad and rad/s. With them equal weights have about
# equal effects; the angle stays below .21 rad, and would otherwise need a weight ten times as large.
UNITS = np.array([1.0, 1.0, 0.1, 1.0])
START, START_RADIUS = np.array([0.0, 0.0, 2.0, 2.0]), 2.5
EPISODES, LEARNING_RATE = 10, 3e-4
# β affects only the samples: βR of returns up to 500 spans 5.
BETA = 0.01


def play(
    weights: np.ndarray, episodes: int, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Episodes of all policies (n, 4) side by side: at each step the states, who pushes right, and who still runs.

    Gymnasium restarts finished episodes. Rows of the restarted ones are marked as not running, and are ignored.
    """
    each, shape = np.repeat(weights, episodes, axis=0), (len(weights), episodes)
    world = gymnasium.make_vec("CartPole-v1", num_envs=len(each), vectorization_mode="vector_entry_point")
    state, _ = world.reset(seed=int(random.integers(2**31)))
    running = np.ones(len(each), bool)
    while running.any():
        scaled = state / UNITS
        right = random.random(len(each)) < expit((scaled * each).sum(axis=1))
        yield scaled.reshape(*shape, 4), right.reshape(shape), running.reshape(shape)
        state, _, fallen, timed_out, _ = world.step(right.astype(int))
        running = running & ~(fallen | timed_out)


def mean_returns(weights: np.ndarray, episodes: int, random: np.random.Generator) -> np.ndarray:
    return sum(running.mean(axis=1) for _, _, running in play(weights, episodes, random))


def losses(policies: torch.Tensor, random: np.random.Generator) -> torch.Tensor:
    """Losses (n,) of policies (n, 4), whose gradients are unbiased for minus those of the expected returns (REINFORCE).

    The baseline of an episode's return from a step on is the mean of the same policy's other episodes.
    """
    played = zip(*play(policies.detach().numpy(), EPISODES, random), strict=True)
    states, right, running = (torch.from_numpy(np.stack(part)).float() for part in played)
    to_go = running.flip(0).cumsum(0).flip(0)
    of_others = (to_go.sum(2, keepdim=True) - to_go) / (EPISODES - 1)
    logits = torch.einsum("tnes,ns->tne", states, policies)
    surprise = torch.nn.functional.binary_cross_entropy_with_logits(logits, right, reduction="none")
    return (surprise * running * (to_go - of_others)).sum(dim=(0, 2)) / EPISODES


def train(log: onlooker.LogWriter, agents: int, steps: int, random: np.random.Generator) -> None:
    """Train learners that start uniformly in a ball; every step of their optimizers goes to the log."""
    away = random.standard_normal((agents, 4))
    away *= START_RADIUS * random.random((agents, 1)) ** (1 / 4) / np.linalg.norm(away, axis=1, keepdims=True)
    policies = [torch.tensor(start, dtype=torch.float32, requires_grad=True) for start in START + away]
    optimizers = [torch.optim.SGD([policy], lr=LEARNING_RATE) for policy in policies]
    for agent, optimizer in enumerate(optimizers):
        onlooker.record(optimizer, log, agent=agent)
    learning = range(agents)
    for _ in range(steps):
        for agent in learning:
            optimizers[agent].zero_grad()
        losses(torch.stack([policies[agent] for agent in learning]), random).sum().backward()
        for agent in learning:
            optimizers[agent].step()
        # A learner without a gradient has finished: all its episodes lasted to the end.
        learning = [agent for agent in learning if policies[agent].grad.any()]
        if not learning:
            break


def main(
    picture: str = "cartpole.png",
    agents: int = 1000,
    steps: int = 30,
    held_out: int = 300,
    rollouts: int = 200,
    seed: int = 0,
) -> dict[str, float]:
    """Train, reconstruct, compare with rollouts; returns the numbers printed."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        with onlooker.LogWriter(folder) as log:
            train(log, agents, steps, random)
        seen = onlooker.read_log(folder)
    result = onlooker.reconstruct(seen, beta=BETA, seed=seed)
    print(*result.warnings, sep="\n")

    places = random.uniform(seen.points.min(axis=0), seen.points.max(axis=0), size=(50 * held_out, 4))
    places = places[result.explored(places)][:held_out]
    truth = mean_returns(places, rollouts, random)
    last = dict(zip(seen.agents.tolist(), seen.points, strict=True))
    way = np.mean(list(last.values()), axis=0) - seen.points[seen.times == 0].mean(axis=0)
    scores = {
        "R̂": result.reward(places),
        "log-density": gaussian_kde(seen.points.T).logpdf(places.T),
        "mean way": places @ way,
        "training time": training_time(seen, places),
    }
    numbers = {
        "gradients": len(seen),
        "standard deviation of the returns": float(truth.std()),
        "rms error of R̂ less its free constant": float((scores["R̂"] - truth).std()),
    }
    for name, score in scores.items():
        numbers[f"Spearman, {name}"] = float(spearmanr(score, truth).statistic)
        numbers[f"Pearson, {name}"] = float(pearsonr(score, truth).statistic)
    for name, number in numbers.items():
        print(f"{name:40}{number:10,.{0 if number > 500 else 3}f}")
    draw(seen, result, truth, scores, numbers).savefig(picture, dpi=110)
    print(f"the picture is in {picture}")
    return numbers


def training_time(seen, places: np.ndarray, neighbours: int = 25) -> np.ndarray:
    """The mean step number of the learners' rows around each place (n, 4): late is better, if learners learn."""
    spread = seen.points.std(axis=0)
    _, near = cKDTree(seen.points / spread).query(places / spread, k=neighbours)
    return seen.times[near].mean(axis=1)


def draw(seen, result, truth, scores, numbers) -> Figure:
    figure = Figure(figsize=(13, 4), layout="constrained")
    good, simple, slice_ = figure.subplots(1, 3)
    constant = np.mean(scores["R̂"] - truth)
    correlations = {name: f"{numbers[f'Spearman, {name}']:.2f}, {numbers[f'Pearson, {name}']:.2f}" for name in scores}
    good.plot([0, 500], [0, 500], color="0.6", linewidth=1)
    good.plot(truth, scores["R̂"] - constant, ".", color="#1f77b4", alpha=0.7, label=f"R̂: {correlations['R̂']}")
    good.set(title=f"R̂ of {len(truth)} policies nobody tried", ylabel="R̂ from gradients, steps")
    for name, colour in (("log-density", "#d95f02"), ("mean way", "#7570b3")):
        standardised = (scores[name] - scores[name].mean()) / scores[name].std()
        simple.plot(truth, standardised, ".", color=colour, alpha=0.7, label=f"{name}: {correlations[name]}")
    simple.set(title="two simple scores of the same policies", ylabel="score, standard deviations")
    for axes in (good, simple):
        axes.set_xlabel("mean return of rollouts, steps")
        axes.legend(loc="lower right", title="Spearman, Pearson", fontsize=9, title_fontsize=9)

    # Through the middle of the starts; the learners shown are those who started closest to it.
    axes = [1, 3]
    low, high = seen.points.min(axis=0)[axes], seen.points.max(axis=0)[axes]
    grid = np.stack(np.meshgrid(*np.linspace(low, high, 80).T), axis=-1)
    places = np.tile(START, (80, 80, 1))
    places[..., axes] = grid
    heights = result.reward(places.reshape(-1, 4)).reshape(80, 80) - constant
    levels = np.linspace(0, 500, 21)
    shown = slice_.contourf(grid[..., 0], grid[..., 1], np.clip(heights, 0, 500), levels, cmap="magma")
    figure.colorbar(shown, ax=slice_, label="R̂, steps", ticks=levels[::4])
    starts = seen.points[seen.times == 0]
    aside = np.linalg.norm(np.delete(starts - START, axes, axis=1), axis=1)
    for agent in seen.agents[seen.times == 0][np.argsort(aside)[:60]]:
        path = seen.points[seen.agents == agent][:, axes]
        slice_.plot(*path.T, ".-", color="#66c2a5", linewidth=0.9, markersize=4, markevery=[0])
    slice_.set(title="a slice of R̂, and learners who start near it")
    slice_.set(xlabel="weight of velocity, s/m", ylabel="weight of angular velocity, s/rad")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
