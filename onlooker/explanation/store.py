"""Save and load explanations: one file of named arrays, its words as JSON. Nothing is unpickled, and ψ is not saved."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from onlooker.core.messages import as_message, in_short
from onlooker.explanation.features import as_features
from onlooker.explanation.result import Explanation
from onlooker.fit.linear_weights import Weights
from onlooker.storage import state_file

__all__ = ["KIND", "load", "save"]

KIND = "Explanation"
ABOUT = "about"


def save(why: Explanation, path: Path) -> Path:
    """See `Explanation.save`."""
    arrays: dict[str, np.ndarray] = {}
    for part in fields(Weights):
        value = getattr(why.found, part.name)
        if value is not None and part.name != "agents":
            arrays[part.name] = np.asarray(value)
    if why.reference is not None:
        arrays["reference"] = why.reference
    about = {
        "names": why.names,
        "suspected": why.suspected,
        "dim": why.dim,
        "rows": why.rows,
        "warnings": [asdict(message) for message in why.warnings],
        "agents": None if why.found.agents is None else why.found.agents.tolist(),
    }
    arrays[ABOUT] = np.asarray(json.dumps(about, default=float))
    return state_file.write(path, KIND, state_file.packed(arrays))


def load(path: Path, features: Any = None) -> Explanation:
    """See `Explanation.load`."""
    arrays = state_file.read(path, KIND)
    try:
        return _restored(arrays, None if features is None else as_features(features, None, None))
    except MemoryError:
        raise
    except Exception as error:
        # The digest is right, so another program wrote the file; a wrong field can fail anywhere.
        raise ValueError(f"{path} does not hold an explanation ({in_short(error)}).") from None


def _restored(arrays: dict[str, np.ndarray], features: Any) -> Explanation:
    about = json.loads(str(arrays.pop(ABOUT)))
    reference = arrays.pop("reference", None)
    values: dict[str, Any] = {
        name: array.item() if not array.ndim else array.astype(float) for name, array in arrays.items()
    }
    found = Weights(**values, agents=None if about["agents"] is None else np.array(about["agents"], str))
    names, suspected = tuple(map(str, about["names"])), tuple(map(str, about["suspected"]))
    k = len(names) + len(suspected)
    shapes = {"values": (k,), "covariance": (k, k), "basis": (k, found.basis.shape[1])}
    for name, shape in shapes.items():
        if getattr(found, name).shape != shape:
            raise ValueError(f"its {name} is of shape {getattr(found, name).shape}")
    warnings = [as_message(message) for message in about["warnings"]]
    why = Explanation(names, suspected, found, int(about["dim"]), int(about["rows"]), reference, warnings, features)
    # Arrays that do not match fail here, not later.
    why.found.interval(np.eye(k))
    return why
