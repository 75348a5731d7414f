"""θ′ − θ = a g + ρ(θ − θ₋) − c θ: what a trainer does between a gradient and the next point, read off the raw rows.

Three things make R̂ wrong without any sign of it in a fit: gradients that were clipped, gradients times a loss scale
that changes, and what the optimizer adds of its own. Each leaves a footprint in the rows. All are sums over rows, a
largest length, or a histogram, which join.
"""

from dataclasses import dataclass, field, fields
from typing import NamedTuple, Self

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.observations import Observations

__all__ = ["SETTINGS", "Lengths", "Steps", "UpdateSettings", "about_updates"]


@dataclass(frozen=True)
class UpdateSettings:
    """Constants of the footprints.

    Attributes
    ----------
    same
        Relative distance from the largest length within which a gradient has that length: clipping in float32 leaves
        1e-7, its usual denominator |g| + 1e-6 leaves 1e-6.
    near
        The same within which there must be clearly fewer rows: rewards that saturate have many there, too.
    clearly
        Factor by which there must be fewer.
    fewest_clipped, least_clipped
        Number of rows, and share of them, that must have the largest length; chance gives one.
    steps_read
        Number of coordinates at most from which steps are read: they determine three coefficients.
    unexplained
        Share of the squared steps that the equation may leave: beyond it the optimizer is another one, and nothing is
        said. Adam leaves a hundredth.
    fewest_steps, dependent
        Number of coordinates of steps, and smallest eigenvalue of the correlations of g, θ − θ₋ and θ, from which their
        coefficients can be told apart.
    errors
        Standard errors by which a decay must exceed zero.
    least_decay
        Smallest decay that is mentioned, as a share of the learners' mean squared gradient: c|θ| against a|g|.
    powers
        Largest power of two of a loss scale that is looked for.
    cells
        Cells per power of two in the histogram of |θ′ − θ|/|g|.
    explained
        Share of the steps whose ratio must be the usual one or off by a whole power of two: others have any.
    fewest_scaled, least_scaled
        Number of steps, and share of them, that must be off by a whole power of two.
    """

    same: float = 1e-4
    near: float = 1e-2
    clearly: float = 3.0
    fewest_clipped: int = 5
    least_clipped: float = 1e-3
    steps_read: int = 1 << 20
    unexplained: float = 1e-3
    fewest_steps: int = 50
    dependent: float = 1e-9
    errors: float = 5.0
    least_decay: float = 1e-4
    powers: int = 40
    cells: int = 50
    explained: float = 0.98
    fewest_scaled: int = 3
    least_scaled: float = 1e-3


SETTINGS = UpdateSettings()
# Rows processed at a time, to bound memory.
CHUNK = 1 << 18


class Lengths(NamedTuple):
    """The largest of some lengths, how many there are, have it nearly, and have it almost.

    Attributes
    ----------
    largest
        The largest length.
    rows
        Number of lengths.
    same
        Number within `UpdateSettings.same` of the largest.
    near
        Number of the others within `UpdateSettings.near`.
    """

    largest: float
    rows: int
    same: int
    near: int

    @classmethod
    def of(cls, lengths: np.ndarray) -> Self:
        """Of lengths (n,)."""
        largest = float(lengths.max(initial=0.0))
        near = lengths[lengths >= largest * (1 - SETTINGS.near)]
        same = int(np.count_nonzero(near >= largest * (1 - SETTINGS.same)))
        return cls(largest, len(lengths), same, len(near) - same)

    def joined(self, other: "Lengths") -> "Lengths":
        """Of both; lengths near the smaller of two different maxima are forgotten."""
        low, high = sorted((self, other))
        rows = self.rows + other.rows
        if low.largest < high.largest * (1 - SETTINGS.same):
            return high._replace(rows=rows)
        return Lengths(high.largest, rows, self.same + other.same, self.near + other.near)

    @property
    def clipped(self) -> float:
        """Share of the rows at a limit; 0 if it looks like chance or like a reward that saturates."""
        enough = self.same >= max(SETTINGS.fewest_clipped, SETTINGS.least_clipped * self.rows)
        return self.same / self.rows if enough and self.same > SETTINGS.clearly * self.near else 0.0


@dataclass
class Steps:
    """Sums over steps of one agent after another: of xxᵀ, xy and y², x = (g, θ − θ₋, −θ), y = θ′ − θ; and ratios.

    Attributes
    ----------
    products
        Σ xxᵀ, (3, 3).
    towards
        Σ xy, (3,).
    squares
        Σ y².
    count
        Number of coordinates of steps.
    ratios
        Histogram of log₂ |θ′ − θ|/|g|, from −`UpdateSettings.powers` to as many.
    sizes
        Sum of log₂ |g| in each of its cells.
    """

    products: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    towards: np.ndarray = field(default_factory=lambda: np.zeros(3))
    squares: float = 0.0
    count: int = 0
    ratios: np.ndarray = field(default_factory=lambda: _no_cells())
    sizes: np.ndarray = field(default_factory=lambda: _no_cells())

    def add(self, before: np.ndarray, points: np.ndarray, gradients: np.ndarray, after: np.ndarray) -> None:
        """Add steps from ``points`` (n, dim) with the points before and after them."""
        taken = after - points
        columns = np.stack([part.ravel() for part in (gradients, points - before, -points)])
        self.products += columns @ columns.T
        self.towards += columns @ taken.ravel()
        self.squares += float((taken**2).sum())
        self.count += taken.size
        lengths = np.linalg.norm(taken, axis=1), np.linalg.norm(gradients, axis=1)
        moved = (lengths[0] > 0) & (lengths[1] > 0)
        sizes = np.log2(lengths[1][moved])
        cells = np.floor((np.log2(lengths[0][moved]) - sizes + SETTINGS.powers) * SETTINGS.cells).astype(int)
        inside = (cells >= 0) & (cells < len(self.ratios))
        self.ratios += np.bincount(cells[inside], minlength=len(self.ratios))
        self.sizes += np.bincount(cells[inside], sizes[inside], len(self.sizes))

    def joined(self, other: "Steps") -> "Steps":
        """The sums over the steps of both."""
        return Steps(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def rule(self) -> "Rule | None":
        """The optimizer's coefficients; ``None`` unless the equation explains nearly all of the steps."""
        if self.count < SETTINGS.fewest_steps or not self.squares > 0:
            return None
        scale = np.sqrt(np.maximum(np.diag(self.products), 1e-300))
        variance, axes = np.linalg.eigh(self.products / np.outer(scale, scale))
        if variance[0] < SETTINGS.dependent:
            return None
        inverse = (axes / variance) @ axes.T / np.outer(scale, scale)
        found = inverse @ self.towards
        left = max(self.squares - float(found @ self.towards), 0.0)
        rate, momentum, decay = found
        if left > SETTINGS.unexplained * self.squares or rate <= 0:
            return None
        error = np.sqrt(inverse[2, 2] * left / self.count)
        share = abs(decay) * np.sqrt(self.products[2, 2]) / (rate * np.sqrt(self.products[0, 0]))
        told = abs(decay) > SETTINGS.errors * error and share > SETTINGS.least_decay
        return Rule(float(rate), float(momentum), float(decay / rate) if told else 0.0, left / self.squares)

    @property
    def scaled(self) -> float:
        """Share of the steps whose gradient is times another power of two than that of most; 0 if that explains little.

        Their ratio is lower by that power. So it is after the learning rate was halved; but then gradients are not
        longer.
        """
        total, middle = self.ratios.sum(), int(np.argmax(self.ratios))
        if not total:
            return 0.0
        number, size = self._around(middle)
        usual, off, apart, longer = size / number, 0.0, 0.0, 0.0
        for power in range(1, 2 * SETTINGS.powers):
            for sign in (-1, 1):
                count, size = self._around(middle + sign * power * SETTINGS.cells)
                off += count
                apart += count * power**2
                longer -= sign * power * (size - count * usual)
        explained = number + off > SETTINGS.explained * total
        enough = off >= max(SETTINGS.fewest_scaled, SETTINGS.least_scaled * total)
        return float(off / total) if enough and explained and longer > 0.5 * apart else 0.0

    def _around(self, cell: int) -> tuple[float, float]:
        """Number of steps in a cell and its two neighbours, and the sum of the logarithms of their gradients."""
        some = slice(max(cell - 1, 0), max(cell + 2, 0))
        return float(self.ratios[some].sum()), float(self.sizes[some].sum())


def _no_cells() -> np.ndarray:
    return np.zeros(2 * SETTINGS.powers * SETTINGS.cells)


class Rule(NamedTuple):
    """θ′ − θ = a(g − λθ) + ρ(θ − θ₋).

    Attributes
    ----------
    rate
        a.
    momentum
        ρ.
    decay
        λ; 0 if it cannot be told from 0.
    left
        Share of the squared steps that this leaves.
    """

    rate: float
    momentum: float
    decay: float
    left: float


def about_updates(seen: Observations) -> tuple[dict[str, float], list[Message]]:
    """Numbers for the diagnostics, and warnings."""
    numbers: dict[str, float] = {}
    # What the recorder knows is said by `onlooker.data.trainer`.
    warnings = [] if "clip" in seen.marks else _about_clipping(seen, numbers)
    steps = steps_of(seen)
    rule = steps.rule()
    if rule is not None:
        numbers |= {"learners_rate": rule.rate, "learners_momentum": rule.momentum, "learners_decay": rule.decay}
        if rule.decay and not (seen.trainer is not None and seen.trainer.decays):
            text = (
                f"the optimizer adds {-rule.decay:.3g}·θ to the gradients (weight decay): learners climb "
                f"R − {rule.decay / 2:.3g}·|θ|², not R. R̂ is R without it: subtract it to see what they maximise."
            )
            warnings.append(Message("decay-added", text, {"decay": rule.decay}))
    if steps.scaled and "scale" not in seen.marks:
        text = (
            f"{steps.scaled:.1%} of the gradients are times another power of two than the others, while the steps they "
            "led to are not: they were recorded with a loss scale that changed. Divide by the scale before recording."
        )
        warnings.append(Message("loss-scaled", text, {"share": steps.scaled}))
    return numbers, warnings


def _about_clipping(seen: Observations, numbers: dict[str, float]) -> list[Message]:
    """A warning if many gradients, or coordinates of gradients, have the same largest length."""
    gradients = seen.gradients
    norms = Lengths(0.0, 0, 0, 0)
    coordinates = norms
    for first in range(0, len(gradients), CHUNK):
        some = np.abs(gradients[first : first + CHUNK])
        norms = norms.joined(Lengths.of(np.sqrt(np.einsum("nd,nd->n", some, some, dtype=float))))
        coordinates = coordinates.joined(Lengths.of(some.ravel()))
    found, what = max(
        (norms, "gradients have the same largest length"),
        (coordinates, "coordinates of gradients have the same largest size"),
        key=lambda pair: pair[0].clipped,
    )
    if not found.clipped:
        return []
    numbers["clipped_share"] = found.clipped
    text = (
        f"{found.clipped:.1%} of the {what}, {found.largest:.4g}: they were clipped, or divided by their length. Where "
        "they are, R̂ is fitted to a field that no reward has. Record gradients before they are clipped."
    )
    return [Message("gradients-clipped", text, {"share": found.clipped, "limit": found.largest})]


def steps_of(seen: Observations) -> Steps:
    """The sums over steps, of at most `UpdateSettings.steps_read` numbers; no steps if agents are unknown."""
    steps = Steps()
    if seen.agents is None:
        return steps
    order = np.argsort(seen.agents, kind="stable")[: SETTINGS.steps_read // seen.dim]
    agents = seen.agents[order]
    middle = np.flatnonzero((agents[2:] == agents[1:-1]) & (agents[1:-1] == agents[:-2])) + 1
    if seen.times is not None:
        times = seen.times[order]
        gap = np.diff(times)
        middle = middle[(gap[middle - 1] > 0) & (gap[middle] == gap[middle - 1])]
    before, here, after = (order[middle + shift] for shift in (-1, 0, 1))
    parts = (seen.points, before), (seen.points, here), (seen.gradients, here), (seen.points, after)
    steps.add(*(values[rows].astype(float) for values, rows in parts))
    return steps
