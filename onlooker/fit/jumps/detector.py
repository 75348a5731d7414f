"""The protocol of a jump detector: two members, so that an Observer can be given another one than `JumpWatch`."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onlooker.fit.jumps.settings import SETTINGS
from onlooker.fit.jumps.statistic import Jump

__all__ = ["JumpDetector", "OtherDetector"]


@runtime_checkable
class JumpDetector(Protocol):
    """Detects jumps of the reward, as `onlooker.fit.jumps.watch.JumpWatch` does.

    It is given points and gradients, not residuals, because each detector chooses its own prediction of the gradients.
    `onlooker.fit.jumps.expected.fit_expected` makes one.
    """

    def update(self, points: np.ndarray, gradients: np.ndarray) -> Any:
        """Test the next points and gradients (n, dim), all finite, in the order in which they were observed."""
        ...

    @property
    def jump_detected(self) -> bool:
        """Whether the last update detected a jump."""
        ...


@dataclass
class OtherDetector:
    """Counts the rows given to a detector other than `JumpWatch`, and the jumps that it detects.

    The jump is placed before the first row of the update that detected it, since the detector does not tell its time.

    Attributes
    ----------
    kind
        Name of the detector's class.
    seen
        Number of observations so far.
    count
        Number of jumps so far.
    jumps
        The last jumps.
    jump_detected
        Whether the last update detected a jump.
    detector
        The detector itself. It is not saved; `Observer.load` must be given another one.
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
        """Wrap a detector that has seen no rows."""
        counted = cls(type(detector).__name__)
        counted.attach(detector)
        return counted

    def attach(self, detector: Any) -> None:
        """Use this detector from now on."""
        if not isinstance(detector, JumpDetector):
            raise TypeError(
                f"detector is {type(detector).__name__}; give an object with update(points, gradients) and "
                "jump_detected, such as JumpWatch(dim)."
            )
        self.detector = detector

    @property
    def watching(self) -> bool:
        """Whether a jump would be detected now: assumed, since the detector does not tell."""
        return True

    def update(self, points: np.ndarray, gradients: np.ndarray) -> None:
        """Give the next rows to the detector."""
        assert self.detector is not None
        self.detector.update(points, gradients)
        before, self.seen = self.seen, self.seen + len(points)
        self.jump_detected = bool(self.detector.jump_detected)
        if self.jump_detected:
            self.jumps = (*self.jumps, Jump(before, self.seen, np.nan, np.nan))[-SETTINGS.remembered :]
            self.count += 1
