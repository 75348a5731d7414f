"""Accept the old names of renamed arguments and attributes for one release."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

__all__ = ["old_name", "renamed"]

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept arguments under their old names, with a DeprecationWarning: ``@renamed(old="new")``.

    Examples
    --------
    >>> @renamed(colour="color")
    ... def paint(color="white"):
    ...     return color
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     paint(colour="red")
    'red'
    >>> str(caught[0].message)
    "paint's argument colour is now called color; the old name goes away in the next release."
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def accepting(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                warnings.warn(
                    f"{called}'s argument {old} is now called {names[old]}; the old name goes away in the next "
                    "release.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                if names[old] in kwargs:
                    raise TypeError(f"{called} got both {names[old]} and {old}, its old name; give {names[old]} alone.")
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accepting

    return wrap


def old_name(owner: Any, old: str, new: str) -> Any:
    """The attribute ``new`` of an object that was asked for its ``old`` name, with a DeprecationWarning."""
    sentence = f"{type(owner).__name__}.{old} is now called {new}; the old name goes away in the next release."
    warnings.warn(sentence, DeprecationWarning, stacklevel=3)
    return getattr(owner, new)
