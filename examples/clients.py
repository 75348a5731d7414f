"""Reconstruct the loss that four clients minimise, each with its own optimizer.

    python examples/clients.py [picture.png]      # needs torch; ten seconds

Every client trains a logistic regression in PyTorch from many starts, on minibatches of data that Onlooker never sees:
with SGD, momentum, Nesterov's momentum and Adam, at learning rates a factor of ten apart. Their steps are recorded, and
−loss, the log of a posterior, is reconstructed from all of them together and compared with the exact one. A second
reconstruction uses only the iterates of the Nesterov client, and recovers its gradients from its steps.
"""

import sys
import tempfile

import numpy as np
import torch
from matplotlib.figure import Figure

import onlooker

# Optimizer, its settings, size of a minibatch.
CLIENTS = {
    "SGD": (torch.optim.SGD, {"lr": 0.02}, 16),
    "momentum": (torch.optim.SGD, {"lr": 0.005, "momentum": 0.9}, 32),
    "Nesterov": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.8, "nesterov": True}, 32),
    "Adam": (torch.optim.Adam, {"lr": 0.05}, 8),
}
WEIGHT, PRIOR_SCALE = 30.0, 2.0


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(500, 2, generator=generator)
    chance = torch.sigmoid(inputs @ torch.tensor([1.5, -1.0]))
    return inputs, (torch.rand(500, generator=generator) < chance).float()


def loss(weights: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Minus the log of a posterior worth 30 observations, with a normal prior, up to a constant."""
    misfit = torch.nn.functional.binary_cross_entropy_with_logits(inputs @ weights, labels)
    return WEIGHT * misfit + (weights**2).sum() / (2 * PRIOR_SCALE**2)


def train(log: onlooker.LogWriter, starts: int, steps: int, seed: int) -> None:
    """Train every client from every start; each of these runs is an agent in the log."""
    torch.manual_seed(seed)
    # The arrays are too small for threads to pay off.
    torch.set_num_threads(1)
    inputs, labels = data(seed)
    for client, (rule, settings, batch) in CLIENTS.items():
        for start in range(starts):
            weights = (torch.tensor([1.0, -0.7]) + 1.5 * torch.randn(2)).requires_grad_()
            optimizer = rule([weights], **settings)
            with onlooker.record(optimizer, log, agent=f"{client} {start}"):
                for _ in range(steps):
                    rows = torch.randint(len(inputs), (batch,))
                    optimizer.zero_grad()
                    loss(weights, inputs[rows], labels[rows]).backward()
                    optimizer.step()


def main(picture: str = "clients.png", starts: int = 60, steps: int = 60, seed: int = 0) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        with onlooker.LogWriter(folder) as log:
            train(log, starts, steps, seed)
        seen = onlooker.read_log(folder)
    result = onlooker.reconstruct(seen, seed=seed)
    print(*result.warnings, sep="\n")
    # Agents are numbered in the order of their first rows.
    nesterov = seen.agents // starts == list(CLIENTS).index("Nesterov")
    settings = CLIENTS["Nesterov"][1]
    from_steps = onlooker.reconstruct(
        seen.points[nesterov],
        agents=seen.agents[nesterov],
        times=seen.times[nesterov],
        learning_rate=settings["lr"],
        optimizer=onlooker.Optimizer("sgd", settings["momentum"], nesterov=True),
        seed=seed,
    )

    axes = np.linspace(-1, 3.2, 80), np.linspace(-2.6, 0.8, 80)
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    inputs, labels = data(seed)
    exact = -np.array([loss(place, inputs, labels) for place in torch.tensor(places, dtype=torch.float32)])
    near = exact > exact.max() - 8
    numbers = {"gradients": float(len(seen)), "R spans": float(np.ptp(exact[near]))}
    rewards = {}
    for name, found in (("all clients", result), ("Nesterov's steps alone", from_steps)):
        known = near & found.explored(places)
        apart = (found.reward(places) - exact)[known]
        rewards[name] = found.reward(places) - apart.mean() - exact.max()
        error = found.reward_error(places)[known]
        numbers[f"explored, {name}"] = float(known.sum() / near.sum())
        numbers[f"rms error, {name}"] = float(apart.std())
        numbers[f"correlation, {name}"] = float(np.corrcoef(found.reward(places)[known], exact[known])[0, 1])
        numbers[f"within two errors, {name}"] = float(np.mean(np.abs(apart - apart.mean()) < 2 * error))
    for name, number in numbers.items():
        print(f"{name:45}{number:10,.{0 if number > 100 else 3}f}")
    draw(seen, axes, {"the exact −loss": exact - exact.max(), **rewards}, starts).savefig(picture, dpi=110)
    print(f"the picture is in {picture}")
    return numbers


def draw(seen: onlooker.Observations, axes: tuple, rewards: dict[str, np.ndarray], starts: int) -> Figure:
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    paths, *maps = figure.subplots(1, 4, sharex=True, sharey=True)
    for number, client in enumerate(CLIENTS):
        colour = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3")[number]
        for start in range(min(starts, 6)):
            path = seen.points[seen.agents == number * starts + start]
            paths.plot(*path.T, color=colour, linewidth=0.8, label=client if start == 0 else None)
    paths.legend(fontsize=8, loc="upper right")
    paths.set(title="some of what is seen", ylabel="weight 2", xlim=axes[0][[0, -1]], ylim=axes[1][[0, -1]])
    for panel, (name, values) in zip(maps, rewards.items(), strict=True):
        shape = tuple(map(len, axes))
        shown = panel.contourf(*axes, np.clip(values, -12, 0).reshape(shape).T, np.linspace(-12, 0, 13), cmap="magma")
        panel.set_title(name, fontsize=11)
    for panel in (paths, *maps):
        panel.set_xlabel("weight 1")
    figure.colorbar(shown, ax=maps, label="reward, its maximum = 0")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
