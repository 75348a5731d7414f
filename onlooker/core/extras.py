"""Errors that say which extra to install when an optional dependency is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MissingExtraError", "needs_extra"]


class MissingExtraError(ImportError):
    """A call needs a package that ``pip install onlooker`` alone does not install."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Turn a failed import into an error that says which extra to install.

    Parameters
    ----------
    extra
        The extra's name in pyproject.toml.
    what
        What needs it, as the subject of the error's sentence.

    Examples
    --------
    >>> with needs_extra("page", "the page"):
    ...     import no_such_package
    Traceback (most recent call last):
    onlooker.core.extras.MissingExtraError: the page needs no_such_package: pip install 'onlooker[page]'.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package == "onlooker":
            raise
        raise MissingExtraError(f"{what} needs {package}: pip install 'onlooker[{extra}]'.", name=package) from None
