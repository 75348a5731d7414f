"""Load a saved Observer: its file holds its fields by name. Names of version 0.1 are translated."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onlooker.core.messages import in_short
from onlooker.fit.jumps.detector import JumpDetector, OtherDetector
from onlooker.storage.state_file import read
from onlooker.storage.trees import unpack

if TYPE_CHECKING:
    from onlooker.live.observer import Observer

__all__ = ["loaded"]

# Prefix of the field whose type depends on the fit, and which is therefore unpacked apart.
SUMS = "_sums/"
# Fields of version 0.1 that are now fields of `Rows`.
MOVED = ("_waiting", "_recent", "_taken", "_by_agent")


def loaded(kind: "type[Observer]", path: Path, detector: JumpDetector | None) -> "Observer":
    """Load an Observer; see `Observer.load`."""
    arrays = read(path, "Observer")
    try:
        live = _restored(kind, arrays)
    except MemoryError:
        raise
    except Exception as error:
        # The digest is right, so another program wrote the file; a wrong field can fail anywhere.
        raise ValueError(f"{path} does not hold what an Observer has learnt ({in_short(error)}).") from None
    if isinstance(live._watch, OtherDetector):
        if detector is None:
            raise ValueError(f"{path} was saved without its detector, {live._watch.kind}; give one: detector=….")
        live._watch.attach(detector)
    elif detector is not None:
        raise ValueError(f"{path} holds its own detector, a JumpWatch; leave detector out.")
    return live


def _restored(kind: "type[Observer]", arrays: dict[str, np.ndarray]) -> "Observer":
    """An Observer from its fields; any exception means that they do not belong together."""
    arrays = _without_agents(_renamed(arrays))
    # This is checked first, because arrays of this dimension are allocated next.
    dims = {int(array) for name, array in arrays.items() if name.split("/")[-1] == "dim"}
    if dims != {arrays["_rows/waiting/points"].shape[1]}:
        raise ValueError(f"its dimensions are {', '.join(map(str, sorted(dims)))}")
    live: Observer = unpack(kind, {name: array for name, array in arrays.items() if not name.startswith(SUMS)})
    if sums := {name.removeprefix(SUMS): array for name, array in arrays.items() if name.startswith(SUMS)}:
        live._sums = unpack(live._kind.sums, sums)
    live._rows.check()
    if min(live._since, live._counted, live._begun_with, live.rejected) < 0:
        raise ValueError("its row counts are negative")
    return live


def _without_agents(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of files that do not hold their agents are of unknown ones."""
    missing = {"_rows/waiting/agents": "_rows/waiting/held"}
    missing |= {f"{name}/_columns/3": f"{name}/_columns/2" for name in ("_rows/recent", "_watch/_recent")}
    unknown = {
        name: np.full(arrays[like].shape, -1) for name, like in missing.items() if like in arrays and name not in arrays
    }
    return arrays | unknown


def _renamed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Fields of version 0.1 by their names of today; those of later versions are returned as they are."""
    if "_waiting/points" not in arrays:
        return arrays
    arrays = {"rejected" if name == "refused" else name: array for name, array in arrays.items()}
    now: dict[str, Any] = {
        f"_rows/{name[1:]}" if name.split("/")[0] in MOVED else name: array for name, array in arrays.items()
    }
    now |= {"_rows/dim": arrays["dim"], "_rows/most": arrays["_recent/most"], "_rows/seed": arrays["seed"]}
    if "forgetting" in arrays and arrays["forgetting"].dtype.kind == "f":
        now["_rows/rate"] = arrays["forgetting"]
    return now
