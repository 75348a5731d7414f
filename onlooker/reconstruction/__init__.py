"""Observations in, a result out: fitted, kept, shown and reported.

The call itself is `onlooker.reconstruction.reconstruct.reconstruct`, or `onlooker.reconstruct`.
"""

from onlooker.reconstruction.result import Reconstruction
from onlooker.reconstruction.store import load

__all__ = ["Reconstruction", "load"]
