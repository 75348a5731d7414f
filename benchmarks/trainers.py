"""What a recorder writes under each trainer setting: the recorded gradient over the true one, on a known quadratic.

The loss is ½(θ − c)ᵀH(θ − c) + ξ_k·θ with noise ξ_k that is known, so that the true gradient of every step is. The
ratio is Σ recorded·true / Σ true², and the last column the largest error of a row, as a share of the mean length. Rows
marked "must fail" leave out what the recorder does: their ratio is not 1.

A second table has what k local steps of a federated client do: θ₀ − θ_k over k times the gradient, by steepness.
"""

import argparse
import warnings

import numpy as np
import torch

import onlooker
from benchmarks.figures import keep
from tests.data.test_updates import trained
from tests.support.trainer_settings import SETTINGS, measured


def local_steps(steps: int = 10, rate: float = 0.1) -> dict[float, float]:
    """kεh of a direction, and the pseudo-gradient (θ_k − θ₀)/(kε) of k local steps over the gradient at θ₀."""
    curvature = torch.tensor([0.1, 0.5, 1.0, 2.0, 5.0]) / (steps * rate)
    point = torch.ones(5, requires_grad=True)
    optimizer = torch.optim.SGD([point], lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * curvature * point**2).sum().backward()
        optimizer.step()
    ratio = (point.detach() - 1) / (steps * rate) / -curvature
    return dict(zip((steps * rate * curvature).tolist(), ratio.tolist(), strict=True))


def clipped_rows(limit: float, seeds: int = 3) -> dict[str, float]:
    """The rms error of R̂, as a share of R's spread, by what is done with rows that were clipped at a length.

    "undone" is the fit to the gradients before clipping, as recorders write them; the others know clipped rows alone.
    "direction" lengthens clipped rows to what R̂ says along them, four times.
    """
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        places = np.random.default_rng(seed).uniform(-1.5, 1.5, (400, 2))
        true = -(0.5 * places**2 + 0.25 * places * np.sin(2 * places) + 0.125 * np.cos(2 * places)).sum(axis=1)
        seen, free = trained(clip=limit, seed=seed), trained(seed=seed)
        gradients = seen.gradients.astype(float)
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        hit = lengths[:, 0] >= limit * (1 - 1e-4)

        def fit(rows: np.ndarray, values: np.ndarray, seen: onlooker.Observations = seen) -> onlooker.Reconstruction:
            kept = onlooker.observe(seen.points[rows], values[rows], agents=seen.agents[rows])
            return onlooker.reconstruct(kept, method="potential")

        every = np.ones(len(hit), bool)
        longer = gradients
        for _ in range(4):
            slopes = fit(every, longer).fitted.gradient(seen.points.astype(float))
            wanted = np.maximum(limit, (gradients / lengths * slopes).sum(axis=1, keepdims=True))
            longer = np.where(hit[:, None], gradients / lengths * wanted, gradients)
        results = {
            "clipped": hit.mean(),
            "as they are": fit(every, gradients),
            "left out": fit(~hit, gradients),
            "direction": fit(every, longer),
            "undone": onlooker.reconstruct(free, method="potential"),
        }
        for name, result in results.items():
            value = result if name == "clipped" else np.nanstd(result.reward(places) - true) / true.std()
            found.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clipped", action="store_true", help="what to do with rows that were clipped, in two minutes")
    if parser.parse_args().clipped:
        warnings.simplefilter("ignore")
        for limit in (1.0, 2.0, 3.0):
            row = clipped_rows(limit)
            keep("clipped rows", limit=limit, **row)
            print(
                f"clipped at {limit:g}: " + ", ".join(f"{name} {value:.3f}" for name, value in row.items()), flush=True
            )
        return
    torch.set_num_threads(1)
    print(f"{'setting':<42} {'recorded/true':>13} {'worst row':>10} {'rows':>5} {'steps':>6}  same bits  said")
    for setting in SETTINGS:
        found = measured(setting)
        keep("trainer setting", setting=setting.name, ratio=found.ratio, worst=found.worst, same=float(found.same))
        print(
            f"{setting.name:<42} {found.ratio:>13.4f} {found.worst:>10.1e} {found.rows:>5} {found.steps:>6}  "
            f"{'yes' if found.same else 'NO':<9}  {', '.join(found.codes)}",
            flush=True,
        )
    print("\n10 local steps of a client, ε = .1: kεh, and the pseudo-gradient over the gradient")
    for steepness, ratio in local_steps().items():
        keep("local steps", steepness=steepness, ratio=ratio)
        print(f"{steepness:>6.1f} {ratio:>6.3f}")


if __name__ == "__main__":
    main()
