"""What a recorder writes under each trainer setting: the recorded gradient over the true one, on a known quadratic.

The loss is ½(θ − c)ᵀH(θ − c) + ξ_k·θ with noise ξ_k that is known, so that the true gradient of every step is. The
ratio is Σ recorded·true / Σ true², and the last column the largest error of a row, as a share of the mean length. Rows
marked "must fail" leave out what the recorder does: their ratio is not 1.

A second table has what k local steps of a federated client do: θ₀ − θ_k over k times the gradient, by steepness.
"""

import torch

from benchmarks.figures import keep
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


def main() -> None:
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
