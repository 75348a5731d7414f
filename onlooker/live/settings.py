"""The constants of an Observer, each with its reason, and the check of its forgetting rate."""

from dataclasses import dataclass
from typing import cast

from onlooker.core.settings import check_share

__all__ = ["ADAPTIVE", "SETTINGS", "ObserverSettings", "check_forgetting"]

# The value of ``forgetting`` that forgets everything before a jump.
ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class ObserverSettings:
    """Constants of an Observer.

    Attributes
    ----------
    first
        Number of observations before the first answer; they set the units and the box of the fit. After every further
        ``first`` observations, it is checked whether learners have left the box.
    most_outside
        Share of the weight outside the box above which the box is too small and the sums begin again.
    kept_lifetimes
        With a forgetting rate γ, the last ``kept_lifetimes``/γ observations are kept (at least ``first``): older ones
        have a weight below a thousandth, e⁻⁷.
    block
        Number of rows that are taken in at a time. Blocks make the answer independent of how rows are divided into
        calls, to the last bit, and spread the cost of NumPy calls over many rows.
    stretch
        Number of rows in a stretch that is held out or fitted as a whole, if agents are not known: most neighbouring
        rows, which may be of the same agent, are then on the same side.
    stretch_lifetimes
        With a forgetting rate γ, a stretch has at most ``stretch_lifetimes``/γ rows, so that ten or more stretches, one
        in five of them held out, have weight at any time.
    checkpoint_every
        Number of observations of a log between two checkpoints: about a second of learning.
    worth_warning
        Share of the weight from before a jump above which there is a warning that R̂ is a mixture of rewards.
    """

    first: int = 1000
    most_outside: float = 0.02
    kept_lifetimes: float = 7.0
    block: int = 100
    stretch: int = 200
    stretch_lifetimes: float = 0.1
    checkpoint_every: int = 100_000
    worth_warning: float = 0.05


SETTINGS = ObserverSettings()


def check_forgetting(forgetting: float | str | None) -> None:
    """Raise a ValueError unless this is a share between 0 and 1, "adaptive" or None."""
    if forgetting == ADAPTIVE:
        return
    try:
        check_share(forgetting=cast(float | None, forgetting))
    except ValueError:
        wanted = f"give a share between 0 and 1, {ADAPTIVE!r} or None."
        raise ValueError(f"forgetting is {forgetting!r}; {wanted}") from None
