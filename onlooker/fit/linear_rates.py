"""gᵢ = c_m Jᵢw + noise: weights, and a learning rate c_m for each agent m, of mean one, when only iterates were seen.

Least squares is linear in w for given c and in c for given w; they are solved in turns.
"""

import numpy as np

__all__ = ["with_rates"]

# Turns at most; ten are usual.
TURNS = 200
# Change of all rates below which the turns end, and the smallest rate: it keeps its sign.
STILL, LEAST = 1e-10, 1e-3


def with_rates(a: np.ndarray, b: np.ndarray, agents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (r,) and rates (m,) from A (n, r, r) and b (n, r) of rows, and the number of each row's agent."""
    count = int(agents.max()) + 1
    by_agent = np.zeros((count, *a.shape[1:])), np.zeros((count, b.shape[1]))
    np.add.at(by_agent[0], agents, a)
    np.add.at(by_agent[1], agents, b)
    a, b = by_agent
    rates = np.ones(count)
    for _ in range(TURNS):
        u = np.linalg.lstsq(np.tensordot(rates**2, a, 1), rates @ b, rcond=None)[0]
        square = np.einsum("r,mrs,s->m", u, a, u)
        new = np.maximum((b @ u) / np.where(square > 0, square, 1), LEAST)
        new /= new.mean()
        moved, rates = np.abs(new - rates).max(), new
        if moved < STILL:
            break
    return np.linalg.lstsq(np.tensordot(rates**2, a, 1), rates @ b, rcond=None)[0], rates
