"""The file with a log's directions and origin, y = W(θ − θ₀), beside its shards: `directions-DIGEST.npz`.

It is named by its content, so that any number of writers may write it, and a shard names the file that its points
belong to.
"""

import io
import re

import numpy as np

from onlooker.data.projection import Projection
from onlooker.storage import archive
from onlooker.storage.signature import array_parts, digest_of
from onlooker.storage.stores import Place, StorePath

__all__ = ["content_of", "load_projection", "name_of"]

# The only names that are opened: a log may come from a stranger.
NAME = re.compile(r"directions-[0-9a-f]{16}\.npz")
# Largest departure of WWᵀ from the identity that is read: float32 leaves 1e-6.
SKEW = 1e-3


def name_of(projection: Projection) -> str:
    """The name of its file."""
    return f"directions-{digest_of(array_parts(_arrays(projection))).hexdigest()[:16]}.npz"


def content_of(projection: Projection) -> bytes:
    """The content of its file."""
    content = io.BytesIO()
    directions, origin, explained = _arrays(projection)
    np.savez(content, directions=directions, origin=origin, explained=explained)
    return content.getvalue()


def load_projection(log: Place, name: str, dim: int) -> Projection | None:
    """Read the file of a log, a folder or one of its shards; ``None`` if it is missing."""
    if not NAME.fullmatch(name):
        return None
    path = (log if log.is_dir() else log.parent) / name
    if not path.exists():
        return None
    try:
        with archive.opened(io.BytesIO(path.read_bytes()) if isinstance(path, StorePath) else path) as arrays:
            directions, origin, explained = (arrays[part] for part in ("directions", "origin", "explained"))
    except (archive.BrokenArchiveError, KeyError) as error:
        raise ValueError(f"{path} has no directions that can be read ({error}); restore it, or record again.") from None
    fits = directions.ndim == 2 and directions.shape[0] == dim and origin.shape == directions.shape[1:]
    if not fits or directions.dtype.kind != "f" or origin.dtype.kind != "f" or explained.shape != ():
        raise ValueError(f"{path} has directions of shape {directions.shape}, but points have {dim} dimensions.")
    if not np.abs(directions @ directions.T - np.eye(dim)).max() < SKEW or not np.isfinite(origin).all():
        raise ValueError(f"{path} has directions that are not orthonormal; restore the file, or record again.")
    return Projection(directions, origin, float(explained))


def _arrays(projection: Projection) -> list[np.ndarray]:
    return [np.asarray(part) for part in (projection.directions, projection.origin, projection.explained)]
