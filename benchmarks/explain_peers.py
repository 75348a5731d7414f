"""The peers of `onlooker.explain`: LOGEL (Ramponi et al., NeurIPS 2020) and LfL (Jacq et al., ICML 2019), written anew.

    python -m benchmarks.explain_peers      # each on the learners that it assumes

LOGEL is as published: ordinary least squares of Δθ on Ĵ, with one learning rate per step, in turns with w, never below
.01. On the paths that the learner's own step was computed from, with the learner's own estimator, it is an identity.
LfL inverts soft policy improvement, r = α log π₂ + αγ E KL(π₁‖π₂) + shaping; here with exact policies and transitions,
and its least squares solved exactly, the best case for it.
"""

import numpy as np

from onlooker.simulation.grid import WEIGHTS, Grid, Table, learn

DISCOUNT = 0.96


def logel(
    steps: np.ndarray, jacobians: np.ndarray, rates: np.ndarray | None = None, turns: int = 50, floor: float = 0.01
) -> np.ndarray:
    """Weights (k,) from steps Δθ (n, dim) and Jacobians (n, dim, k); with unknown rates, one for each step."""

    def weights(rate: np.ndarray) -> np.ndarray:
        top = np.einsum("i,ijk,ij->k", rate, jacobians, steps, optimize=True)
        gram = np.einsum("i,ijk,ijl->kl", rate**2, jacobians, jacobians, optimize=True)
        return np.linalg.pinv(gram, rcond=1e-10) @ top

    if rates is not None:
        return weights(rates)
    w, old = weights(np.full(len(steps), 0.1)), np.zeros(1)
    for _ in range(turns):
        if np.linalg.norm(w - old) <= 1e-2:
            break
        along = jacobians @ w
        rate = np.maximum(np.einsum("ij,ij->i", along, steps) / np.einsum("ij,ij->i", along, along), floor)
        w, old = weights(rate), w
    return w


def lfl(grid: Grid, policies: np.ndarray, agents: np.ndarray, times: np.ndarray, alpha: float = 0.7) -> np.ndarray:
    """r (states, actions) from policies (n, states, actions) and exact transitions: one shaping per update is free."""
    order = np.lexsort((times, agents))
    logs, who = np.log(np.maximum(policies[order], 1e-12)), agents[order]
    keep = np.eye(grid.states * 4) - _shapings(grid) @ np.linalg.pinv(_shapings(grid))
    total, updates = np.zeros(grid.states * 4), 0
    for one, two, same in zip(logs[:-1], logs[1:], who[1:] == who[:-1], strict=True):
        if same:
            gap = (np.exp(one) * (two - one)).sum(axis=1)
            ahead = np.einsum("asp,p->sa", grid.transitions, gap)
            total += keep @ (alpha * two - alpha * DISCOUNT * ahead).ravel()
            updates += 1
    return (total / updates).reshape(grid.states, 4)


def to_weights(grid: Grid, reward: np.ndarray) -> np.ndarray:
    """Weights of the colours nearest to r(s, a), any shaping allowed."""
    design = np.concatenate([grid.features().reshape(grid.states * 4, -1), _shapings(grid)], axis=1)
    return np.linalg.lstsq(design, reward.ravel(), rcond=1e-10)[0][: len(WEIGHTS)]


def _shapings(grid: Grid) -> np.ndarray:
    """Φ(s) − γ E Φ(s′) for every Φ, (states · actions, states)."""
    stay = np.repeat(np.eye(grid.states)[:, None], 4, axis=1)
    return (stay - DISCOUNT * grid.transitions.swapaxes(0, 1)).reshape(grid.states * 4, grid.states)


def soft_iteration(grid: Grid, updates: int, temperature: float = 0.7) -> np.ndarray:
    """Policies (updates + 1, states, actions) of the learner that LfL assumes: soft policy iteration from uniform."""
    policy = np.full((grid.states, 4), 0.25)
    reward, seen = grid.features() @ WEIGHTS, [np.full((grid.states, 4), 0.25)]
    for _ in range(updates):
        chain = np.einsum("sa,asp->sp", policy, grid.transitions)
        soft = (policy * (reward - temperature * np.log(policy))).sum(axis=1)
        value = np.linalg.solve(np.eye(grid.states) - DISCOUNT * chain, soft)
        ahead = (reward + DISCOUNT * np.einsum("asp,p->sa", grid.transitions, value)) / temperature
        raised = np.exp(ahead - ahead.max(axis=1, keepdims=True))
        policy = raised / raised.sum(axis=1, keepdims=True)
        seen.append(policy)
    return np.stack(seen)


def off(w: np.ndarray, truth: np.ndarray = WEIGHTS) -> float:
    """|P(ŵ − w)|/|Pw|, P taking out the mean: the constant cannot be known."""
    centred = truth - truth.mean()
    return float(np.linalg.norm(w - w.mean() - centred) / np.linalg.norm(centred))


def main() -> None:
    grid, table = Grid(), Table(Grid())
    print(f"{'':52}{'error of w':>12}")
    for batch in (5, 50):
        seen = learn(grid, table, agents=1, steps=10, batch=batch, seed=batch)
        own = table.pull(seen.points, grid.estimate(table.logits(seen.points), seen.paths)[0])
        fresh = grid.paths(table.logits(seen.points), batch, np.random.default_rng(1))
        other = table.pull(seen.points, grid.estimate(table.logits(seen.points), fresh)[0])
        for name, jacobians in (("the learner's own paths", own), ("as many paths of its own", other)):
            error = off(logel(0.1 * seen.gradients, jacobians, np.full(10, 0.1)))
            print(f"LOGEL, 10 steps of {batch:2d} paths, {name:<26}{error:12.4f}")
    for slip in (0.0, 0.3):
        for updates in (2, 6, 10):
            home = Grid(slip=slip)
            policies = soft_iteration(home, updates)
            reward = lfl(home, policies, np.zeros(updates + 1), np.arange(updates + 1))
            print(
                f"LfL, {updates:2d} soft policy iterations, slip {slip:g}{'':16}{off(to_weights(home, reward)):12.4f}"
            )


if __name__ == "__main__":
    main()
