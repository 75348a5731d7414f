"""What the checks of `onlooker.testing` share: they raise `BrokenError`."""

import numpy as np

__all__ = ["BrokenError", "equal", "require"]


class BrokenError(AssertionError):
    """A check failed."""


def require(holds: bool, problem: str) -> None:
    """Raise `BrokenError` that names the problem unless something holds."""
    if not holds:
        raise BrokenError(f"{problem}.")


def equal(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays are equal to the last bit; nan is equal to nan."""
    return np.array_equal(left, right, equal_nan=True)
