"""The numbers of the compiled density (`ridge_density`) of a potential, with the terms that confine its samples.

The posterior variance of R̂ is a sum over the eigenvectors of the units' normal matrix; kept are those that grow most
from the learners' points outwards.
"""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from onlooker.fit.ridge_density import Density
from onlooker.fit.ridge_dictionary import MOST_MEMBERS
from onlooker.fit.ridge_units import values

if TYPE_CHECKING:
    from onlooker.fit.ridge_potential import Member, RidgePotential

__all__ = ["LEAST_WALL", "unconfined"]

# Terms of the posterior variance that confine samples: at most so many, and so many numbers in all.
MOST_CONFINING, CONFINING_NUMBERS = 48, 20_000
# Units in the compiled density are padded to a multiple of this number.
PADDED = 128
# The least height of the wall beyond the limit.
LEAST_WALL = 2.0


def unconfined(potential: "RidgePotential") -> Density:
    """The numbers of the density at β = 1, without a limit yet."""
    parts = [member.units.bends for member in potential.members], [member.units.waves for member in potential.members]
    system, about, _ = potential.systems[0]
    units, head, *_ = potential.members[0]
    quadratic = system.quadratic * (1 + head.quadratic)
    level = system.count * system.precision
    inverse = np.zeros((potential.dim, potential.dim))
    inverse[system.rows, system.columns] = 1 / quadratic * np.where(system.rows == system.columns, 0.25, 1.0)
    counts = [-(-sum(map(len, kind)) // PADDED) * PADDED for kind in parts]
    most = int(np.clip(CONFINING_NUMBERS // potential.dim**2, 8, MOST_CONFINING))
    lifted = np.zeros((most, sum(counts)))
    squares, along = np.zeros((most, potential.dim, potential.dim)), np.zeros((most, potential.dim))
    shift = np.zeros(most)
    if units.number:
        matrix = system.prior_matrix(head)
        variance, axes = np.linalg.eigh(matrix)
        probes = potential.inside(potential.typical)
        probes = np.concatenate([probes, 1.5 * probes])
        left = system.left(system.terms(probes, values(units, probes)) - about, head)
        weight = ((left @ axes) ** 2).mean(axis=0) / np.maximum(variance, 1e-12 * variance.max())
        chosen = np.argsort(-weight)[:most]
        rows = (axes[:, chosen] / np.sqrt(np.maximum(variance[chosen], 1e-12 * variance.max()))).T
        few = len(chosen)
        cut = len(units.bends)
        lifted[:few, :cut] = rows[:, :cut]
        lifted[:few, counts[0] : counts[0] + units.number - cut] = rows[:, cut:]
        flat = rows @ (system.mixed / quadratic) * np.where(system.rows == system.columns, 0.5, 1.0)
        squares[:few][:, system.rows, system.columns] = flat
        along[:few] = rows @ (system.linear / level)
        shift[:few] = system.left(about[None], head)[0] @ rows.T
    bends, waves = (_stacked(kind, count) for kind, count in zip(parts, counts, strict=True))
    # One candidate, or as many as there may be: the others have no share.
    places = 1 if len(potential.members) == 1 else MOST_MEMBERS
    affine = [member.head.affine for member in potential.members]
    numbers = (
        1.0,
        _stacked([potential.shares], places),
        _stacked([potential.values(potential.inside(potential.typical)).mean(axis=1)], places),
        _stacked([np.stack(affine)], places),
        bends,
        waves,
        *_weights(potential.members, places, counts),
        system.turn,
        system.mean,
        inverse,
        1 / level,
        lifted,
        squares,
        along,
        shift,
        np.sqrt(potential.noise),
        np.inf,
        LEAST_WALL,
        potential.frame.centre,
        potential.frame.forward,
        potential.frame.backward,
    )
    return Density(*(jnp.asarray(number, jnp.float32) for number in numbers))


def _weights(members: "tuple[Member, ...]", places: int, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Weights of log cosh units and of cosines, a row for each candidate and a column for each unit of any."""
    found = np.zeros((places, counts[0])), np.zeros((places, counts[1]))
    first = [0, 0]
    for row, member in enumerate(members):
        cut = len(member.units.bends)
        for kind, part in enumerate((member.head.weights[:cut], member.head.weights[cut:])):
            found[kind][row, first[kind] : first[kind] + len(part)] = part
            first[kind] += len(part)
    return found


def _stacked(parts: list[np.ndarray], count: int) -> np.ndarray:
    """Parts one after another, with zeros up to a number of rows."""
    rows = np.concatenate(parts)
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]))])
