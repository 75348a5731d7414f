"""Small matrices on one thread: waking a pool of threads costs more than the algebra of a few hundred numbers."""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


@cache
def _controller() -> ThreadpoolController:
    # Libraries that are loaded later stay as they are; NumPy's and SciPy's are.
    return ThreadpoolController()


def one_thread() -> AbstractContextManager:
    """Within it NumPy's and SciPy's linear algebra has one thread."""
    return _controller().limit(limits=1, user_api="blas")
