"""g = clip(g₀) = c g₀, c = min(1, limit/|g₀|): what torch's clipping did to gradients, so that it can be undone.

While something is recorded, `torch.nn.utils.clip_grad_norm_` and `clip_grad_value_` also note their limit, and the
former the length that it found; their results stay the same. Trainers call them by these names. A function that was
imported by name before the first recording is not noted; rows that were clipped then show it (`gradients-clipped`).
"""

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["Clipped", "anything", "clipped", "forget", "listen", "stop_listening", "undone"]

# What torch adds to the length before it divides.
ADDED = 1e-6
# Names of the functions, and the modules that have them.
NAMES = ("clip_grad_norm_", "clip_grad_value_")
HOMES = (torch.nn.utils, torch.nn.utils.clip_grad)


class Clipped(NamedTuple):
    """What was done to a tensor's gradient: multiplied by ``factor``, a number or a scalar on its device.

    Attributes
    ----------
    factor
        c; 0 if the gradient was clipped coordinate by coordinate, and ``None`` if not even that.
    limit
        The largest length, or coordinate, that was allowed.
    """

    factor: Any
    limit: float


# By the id of the tensor, which another may have once the tensor is gone.
_noted: dict[int, tuple[weakref.ref, Clipped]] = {}
_originals: dict[tuple[Any, str], Callable] = {}
_listeners = 0


def listen() -> None:
    """Begin to note what is clipped; as often as `stop_listening` is called, it goes on."""
    global _listeners
    _listeners += 1
    if _listeners > 1:
        return
    for home in HOMES:
        for name in NAMES:
            original = getattr(home, name)
            _originals[home, name] = original
            setattr(home, name, (_by_norm if name == NAMES[0] else _by_value)(original))


def stop_listening() -> None:
    """Stop noting, if nobody else listens."""
    global _listeners
    _listeners -= 1
    if not _listeners:
        for (home, name), original in _originals.items():
            # Somebody else may have put a function of their own there.
            if getattr(getattr(home, name), "__wrapped__", None) is original:
                setattr(home, name, original)
        _originals.clear()
        _noted.clear()


def anything() -> bool:
    """Whether anything is noted."""
    return bool(_noted)


def clipped(tensor: torch.Tensor) -> Clipped | None:
    """What was noted of a tensor since it was forgotten."""
    reference, one = _noted.get(id(tensor), (None, None))
    return one if reference is not None and reference() is tensor else None


def undone(parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> tuple[Any, float]:
    """By what all gradients are still multiplied, 0 if that cannot be undone, and the limit.

    If only some tensors were clipped, or by different factors, their gradients are divided here.
    """
    if not _noted:
        return 1.0, float("nan")
    notes = [clipped(tensor) for tensor in parameters]
    first = notes[0]
    if all(note is first for note in notes):
        return (1.0, float("nan")) if first is None else (first.factor, first.limit)
    known = [note for note in notes if note is not None]
    for note, gradient in zip(notes, gradients, strict=True):
        if note is not None and not (isinstance(note.factor, float) and not note.factor):
            gradient.div_(note.factor)
    lost = any(isinstance(note.factor, float) and not note.factor for note in known)
    return (0.0 if lost else 1.0), known[0].limit


def forget(tensors: Iterable[torch.Tensor]) -> None:
    """Forget what was noted of these tensors: their step is done."""
    for tensor in tensors:
        _noted.pop(id(tensor), None)


def _listed(parameters: Any) -> list[torch.Tensor]:
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def _by_norm(original: Callable) -> Callable:
    @functools.wraps(original)
    def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> torch.Tensor:
        tensors = _listed(parameters)
        norm = original(tensors, max_norm, *args, **kwargs)
        if norm.device.type == "cpu":
            factor: Any = min(1.0, float(max_norm) / (float(norm) + ADDED))
        else:
            factor = torch.clamp(float(max_norm) / (norm + ADDED), max=1.0)
        one = Clipped(factor, float(max_norm))
        _noted.update((id(tensor), (weakref.ref(tensor), one)) for tensor in tensors)
        return norm

    return clip_grad_norm_


def _by_value(original: Callable) -> Callable:
    @functools.wraps(original)
    def clip_grad_value_(parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
        tensors = _listed(parameters)
        for tensor in tensors:
            reached = tensor.grad is not None and bool((tensor.grad.abs() > float(clip_value)).any())
            _noted[id(tensor)] = weakref.ref(tensor), Clipped(0.0 if reached else 1.0, float(clip_value))
        return original(tensors, clip_value, *args, **kwargs)

    return clip_grad_value_
