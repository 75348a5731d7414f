"""What a detector of jumps is: two members, so that others than `JumpWatch` can be given to an Observer."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onlooker.fit.jumps.statistic import Jump

__all__ = ["JumpDetector", "OtherDetector"]

# Jumps remembered.
REMEMBERED = 1000


@runtime_checkable
class JumpDetector(Protocol):
    """Notices that the reward has jumped. `onlooker.fit.jumps.watch.JumpWatch` is one.

    It is given points and gradients, not residuals: what gradients to expect is a detector's own business, and
    `onlooker.fit.jumps.expected.fit_expected` is at hand for those that want residuals.
    """

    def update(self, points: np.ndarray, gradients: np.ndarray) -> Any:
        """The next rows (n, dim), all finite, in the order in which they were made."""
        ...

    @property
    def jump_detected(self) -> bool:
        """Whether the last update found that the reward has jumped."""
        ...


@dataclass
class OtherDetector:
    """Counts the rows given to somebody else's detector, and writes down when it found jumps.

    A jump is taken to have come before the first row of the update that found it: two members cannot say more.

    Attributes
    ----------
    kind
        The detector's class, by name.
    detector
        The detector itself. It is not saved; `Observer.load` is given another one.
    """

    kind: str
    seen: int = field(default=0, init=False)
    count: int = field(default=0, init=False)
    jumps: tuple[Jump, ...] = field(default=(), init=False)
    jump_detected: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.detector: JumpDetector | None = None

    @classmethod
    def of(cls, detector: Any) -> "OtherDetector":
        counted = cls(type(detector).__name__)
        counted.attach(detector)
        return counted

    def attach(self, detector: Any) -> None:
        if not isinstance(detector, JumpDetector):
            raise TypeError(
                f"detector is {type(detector).__name__}; give an object with update(points, gradients) and "
                "jump_detected, such as JumpWatch(dim)."
            )
        self.detector = detector

    @property
    def watching(self) -> bool:
        """Whether it would notice a jump is not known of a stranger; it is assumed."""
        return True

    def update(self, points: np.ndarray, gradients: np.ndarray) -> None:
        assert self.detector is not None
        self.detector.update(points, gradients)
        before, self.seen = self.seen, self.seen + len(points)
        self.jump_detected = bool(self.detector.jump_detected)
        if self.jump_detected:
            self.jumps = (*self.jumps, Jump(before, self.seen, np.nan, np.nan))[-REMEMBERED:]
            self.count += 1
