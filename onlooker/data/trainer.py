"""What learners climb when a trainer stands between the loss and the step, and what is said about it.

A learner whose optimizer adds −λθ to its gradients climbs R − ½λ|θ|², R = −loss. Recorders write gradients of the loss:
without the decay, divided by the loss scale, and as they were before they were clipped by their length. So the
objective can be chosen afterwards: ``"training"`` is what the learners climb, ``"loss"`` is R alone.
"""

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onlooker.core.messages import Message, in_short
from onlooker.data.observations import Observations

if TYPE_CHECKING:
    from onlooker.data.projection import Projection

__all__ = [
    "OBJECTIVES",
    "Decay",
    "Trainer",
    "about_trainer",
    "climbed",
    "common",
    "decay_of",
    "trainer_of",
    "with_decay",
]

OBJECTIVES = ("training", "loss")
# Longest text and number of pieces of the decay that are read: files may come from strangers.
LONGEST, MOST_PIECES = 400, 10_000


@dataclass(frozen=True)
class Trainer:
    """What a log knows about the trainer of its learners.

    Attributes
    ----------
    algorithm
        Its name, such as "PPO"; empty if the gradients are simply those of a loss.
    surrogate
        What the gradients are of, if of no fixed function: "a clipped surrogate of the return …".
    decay
        λ of the weight decay, as (number of coordinates, λ) in the order of the parameters; empty if there is none.
    decoupled
        Whether the decay shrinks the weights beside the step, as AdamW does, so that no function of θ is climbed.
    accumulation
        Number of backward passes per step, by which gradients were divided.
    parameters
        Number of parameters that the points are directions of; 0 if points are the parameters.
    recorded
        Whether a recorder read the gradients, so that their sign is known.
    """

    algorithm: str = ""
    surrogate: str = ""
    decay: tuple[tuple[int, float], ...] = ()
    decoupled: bool = False
    accumulation: int = 1
    parameters: int = 0
    recorded: bool = False

    @property
    def decays(self) -> bool:
        return any(rate for _, rate in self.decay)

    @property
    def largest_decay(self) -> float:
        return max((rate for _, rate in self.decay), key=abs, default=0.0)

    def to_text(self) -> str:
        """As one line of JSON, without what is not known; empty if nothing is."""
        known = {name: value for name, value in vars(self).items() if value != getattr(Trainer(), name)}
        return json.dumps(known, ensure_ascii=False) if known else ""


def trainer_of(text: str) -> Trainer:
    """Parse what a file says, which may come from a stranger; a ValueError says what is wrong."""
    if not text:
        return Trainer()
    try:
        said = json.loads(text)
        known = {name: said[name] for name in vars(Trainer()).keys() & said.keys()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its trainer is not described by JSON ({in_short(error)})") from None
    pieces = known.pop("decay", [])
    kinds = {name: type(value) for name, value in vars(Trainer()).items()}
    wrong = [name for name, value in known.items() if type(value) is not kinds[name]]
    if wrong or not isinstance(pieces, list) or len(pieces) > MOST_PIECES:
        raise ValueError(f"its trainer has a {(wrong or ['decay'])[0]} of another type")
    try:
        decay = tuple((int(count), float(rate)) for count, rate in pieces)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("its trainer has a decay of another type") from None
    if (
        any(count < 1 or not np.isfinite(rate) for count, rate in decay)
        or min(known.get("accumulation", 1), known.get("parameters", 0) + 1) < 1
    ):
        raise ValueError("its trainer has numbers out of range")
    texts = {name: known[name][:LONGEST] for name in ("algorithm", "surrogate") if name in known}
    return Trainer(**{**known, **texts, "decay": decay})


def common(one: Trainer, other: Trainer) -> Trainer:
    """What two trainers that share a log have in common."""
    return Trainer(**{name: value for name, value in vars(one).items() if value == getattr(other, name)})


def climbed(seen: Observations, objective: str = "training") -> Observations:
    """Observations of the objective: with "training", −λθ is added to gradients where the log says that learners do.

    A decay beside the step (AdamW) is of no function of θ alone, and is not added.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; choose one of {', '.join(OBJECTIVES)}.")
    if objective == "loss" or seen.trainer is None:
        return seen
    return replace(seen, gradients=with_decay(seen.points, seen.gradients, seen.trainer, seen.projection))


def with_decay(
    points: np.ndarray, gradients: np.ndarray, trainer: Trainer, projection: "Projection | None"
) -> np.ndarray:
    """Gradients (n, dim) with −λθ, if there is a weight decay that can be added."""
    decay = decay_of(trainer, projection, points.shape[1])
    return gradients if decay is None else decay.added(points, gradients)


class Decay(NamedTuple):
    """What is to be added to gradients: −λθ, or −λ(y + Wθ₀) at points y along directions.

    Attributes
    ----------
    rates
        λ, of all coordinates or of each (dim,).
    origin
        Wθ₀ (dim,); ``None`` if points are all parameters.
    """

    rates: Any
    origin: np.ndarray | None

    def added(self, points: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Gradients (n, dim) with it."""
        here = points if self.origin is None else points + self.origin
        return (gradients - self.rates * here).astype(gradients.dtype)


def decay_of(trainer: Trainer, projection: "Projection | None", dim: int, objective: str = "training") -> Decay | None:
    """The weight decay of the objective; ``None`` if there is none, or none that can be added."""
    rates = _rates(trainer, dim) if objective == "training" else None
    if rates is None:
        return None
    return Decay(rates, None if projection is None else projection.along_origin)


def _rates(trainer: Trainer, dim: int) -> Any:
    """λ, of each coordinate or of all; ``None`` if there is none, or none that can be added."""
    if not trainer.decays or trainer.decoupled:
        return None
    rates = {rate for _, rate in trainer.decay}
    if len(rates) == 1:
        return rates.pop()
    if sum(count for count, _ in trainer.decay) != dim:
        return None
    return np.repeat([rate for _, rate in trainer.decay], [count for count, _ in trainer.decay])


def about_trainer(seen: Observations, objective: str = "training") -> list[Message]:
    """What the log of these observations knows and a reader of R̂ should."""
    trainer, marks = seen.trainer, seen.marks
    messages = []
    if trainer is not None:
        messages += [*_about_surrogate(trainer), *_about_decay(seen, trainer, objective)]
    if "scale" in marks:
        low, high = float(np.nanmin(marks["scale"])), float(np.nanmax(marks["scale"]))
        text = (
            f"gradients came with a loss scale of {_range(low, high)}, which was divided out: R̂ is in the loss's units."
        )
        messages.append(Message("loss-unscaled", text, {"least": low, "largest": high}))
    if "clip" in marks:
        messages += _about_clipping(marks["clip"], marks.get("limit"))
    if "passes" in marks:
        passes = float(np.nanmedian(marks["passes"]))
        text = (
            f"each gradient is a sum over {passes:g} backward passes, which was not divided. If the trainer does not "
            f"divide its loss, R̂ is {passes:g} times too high: record with accumulation={passes:g}."
        )
        messages.append(Message("gradients-summed", text, {"passes": passes}))
    if trainer is not None and trainer.parameters and seen.projection is None:
        text = (
            f"points are {seen.dim} directions of {trainer.parameters} parameters, and the file of directions is "
            "missing: R̂ is R averaged over where learners were in the others."
        )
        messages.append(Message("projected", text, {"directions": seen.dim, "dimensions": trainer.parameters}))
    return messages


def _about_surrogate(trainer: Trainer) -> list[Message]:
    if not trainer.surrogate:
        return []
    text = (
        f"{trainer.algorithm or 'the trainer'} follows {trainer.surrogate}: R̂ is the function whose gradients come "
        "closest to that, not the return."
    )
    return [Message("surrogate", text, {"algorithm": trainer.algorithm})]


def _about_decay(seen: Observations, trainer: Trainer, objective: str) -> list[Message]:
    if not trainer.decays:
        return []
    largest = trainer.largest_decay
    numbers = {"decay": largest}
    if trainer.decoupled:
        text = (
            f"the optimizer shrinks the weights by a share of {largest:.3g} beside its steps (decoupled weight decay): "
            "R̂ is minus the loss, and learners come to rest nearer to 0 than where it is highest."
        )
        return [Message("decay-decoupled", text, numbers)]
    if _rates(trainer, seen.dim) is None:
        text = (
            f"the optimizer adds a weight decay of up to {largest:.3g}, which differs between parameters that the "
            "recorded directions mix: R̂ is minus the loss, without it."
        )
    elif objective == "loss":
        text = (
            f"the optimizer adds {-largest:.3g}·θ to the gradients (weight decay), and objective='loss' leaves it out: "
            f"learners climb R − {largest / 2:.3g}·|θ|², R̂ is R alone."
        )
    else:
        text = (
            f"the optimizer adds {-largest:.3g}·θ to the gradients (weight decay): R̂ is R − {largest / 2:.3g}·|θ|², "
            "what learners climb. objective='loss' leaves the decay out."
        )
    return [Message("decay-added", text, numbers)]


def _about_clipping(factors: np.ndarray, limits: np.ndarray | None) -> list[Message]:
    known = np.isfinite(factors)
    by_value = float(np.mean(factors[known] == 0)) if known.any() else 0.0
    by_norm = float(np.mean((factors[known] > 0) & (factors[known] < 1))) if known.any() else 0.0
    limit = np.nan if limits is None or np.isnan(limits).all() else float(np.nanmedian(limits))
    if by_value:
        text = (
            f"{by_value:.1%} of the gradients were clipped at {limit:.4g} coordinate by coordinate, which cannot be "
            "undone. Where they are, R̂ is fitted to a field that no reward has. Clip by the norm, or not at all."
        )
        return [Message("gradients-clipped", text, {"share": by_value, "limit": limit})]
    if not by_norm:
        return []
    text = (
        f"{by_norm:.1%} of the gradients were clipped at a length of {limit:.4g}; they were recorded as they were "
        "before: R̂ is of the loss, and clipping only makes learners slower."
    )
    return [Message("clipping-undone", text, {"share": by_norm, "limit": limit})]


def _range(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
