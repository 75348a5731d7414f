"""What a saved Observer's file holds, by the names of its fields; and the names that version 0.1 had for them."""

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

# The field of a saved Observer whose type depends on the fit.
SUMS = "_sums/"
# Fields of version 0.1 that are now in the rows.
MOVED = ("_waiting", "_recent", "_taken", "_by_agent")


def loaded(kind: "type[Observer]", path: Path, detector: JumpDetector | None) -> "Observer":
    """A saved Observer; see `Observer.load`."""
    arrays = read(path, "Observer")
    try:
        live = _restored(kind, arrays)
    except MemoryError:
        raise
    except Exception as error:
        # Whole, but made by somebody else: a field that is missing or strange can fail anywhere.
        raise ValueError(f"{path} does not hold what an Observer has learnt ({in_short(error)}).") from None
    if isinstance(live._watch, OtherDetector):
        if detector is None:
            raise ValueError(f"{path} was saved without its detector, {live._watch.kind}; give one: detector=….")
        live._watch.attach(detector)
    elif detector is not None:
        raise ValueError(f"{path} holds its own detector, a JumpWatch; leave detector out.")
    return live


def _restored(kind: "type[Observer]", arrays: dict[str, np.ndarray]) -> "Observer":
    """An Observer from its fields; any error says that they are not of one piece."""
    arrays = _renamed(arrays)
    # Before room is made for so many.
    dims = {int(array) for name, array in arrays.items() if name.split("/")[-1] == "dim"}
    if dims != {arrays["_rows/waiting/points"].shape[1]}:
        raise ValueError(f"its dimensions are {', '.join(map(str, sorted(dims)))}")
    live: Observer = unpack(kind, {name: array for name, array in arrays.items() if not name.startswith(SUMS)})
    if sums := {name.removeprefix(SUMS): array for name, array in arrays.items() if name.startswith(SUMS)}:
        live._sums = unpack(live._kind.sums, sums)
    live._rows.check()
    if min(live._since, live._counted, live._begun_with, live.refused) < 0:
        raise ValueError("its row counts are negative")
    return live


def _renamed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if "_waiting/points" not in arrays:
        return arrays
    now: dict[str, Any] = {
        f"_rows/{name[1:]}" if name.split("/")[0] in MOVED else name: array for name, array in arrays.items()
    }
    now |= {"_rows/dim": arrays["dim"], "_rows/most": arrays["_recent/most"], "_rows/seed": arrays["seed"]}
    if "forgetting" in arrays and arrays["forgetting"].dtype.kind == "f":
        now["_rows/rate"] = arrays["forgetting"]
    return now
