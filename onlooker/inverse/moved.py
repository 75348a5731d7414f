"""Old names of what is now in `onlooker.paper`: they work for one release, with a DeprecationWarning."""

import importlib
import warnings
from typing import Any

__all__ = ["from_paper"]


def from_paper(old: str, module: str, name: str, *, stacklevel: int = 3) -> Any:
    """Return ``name`` of a module of `onlooker.paper`, and warn that ``old`` is deprecated.

    The module is imported by its name, because this package must not depend on that one.
    """
    warnings.warn(
        f"onlooker.inverse.{old} is now onlooker.paper.{module}.{name}; the next release removes the old name.",
        DeprecationWarning,
        stacklevel=stacklevel,
    )
    return getattr(importlib.import_module(f"onlooker.paper.{module}"), name)
