"""Write a result into a folder: result.zarr, figures and summary.json."""

import json
from pathlib import Path
from typing import Any

from onlooker.reconstruction.plots import save
from onlooker.reconstruction.result import Reconstruction
from onlooker.reconstruction.store import STORE
from onlooker.storage.atomic import replace_file

__all__ = ["SUMMARY", "write_result"]

SUMMARY = "summary.json"


def write_result(folder: Path, result: Reconstruction, **about: Any) -> dict[str, Any]:
    """Write a result, its figures and its summary into a folder; returns the summary, which ``about`` is added to."""
    result.save(folder / STORE)
    figures = {"samples.png": result.plot()}
    found: dict[str, Any] = {"maximum": None, "maximum_explored": False}
    if result.fitted.known:
        figures = {"landscape.png": result.landscape(), **figures}
        maximum = result.maximum(extrapolate=True)
        found = {"maximum": maximum.tolist(), "maximum_explored": bool(result.explored(maximum[None])[0])}
    for name, figure in figures.items():
        save(figure, folder / name)
    summary = {
        **about,
        "method": result.method,
        **found,
        "diagnostics": result.diagnostics,
        "trusted": result.trusted,
        "warnings": [str(message) for message in result.warnings],
        "codes": [message.code for message in result.warnings],
        "files": [STORE, *figures],
    }
    replace_file(folder / SUMMARY, (json.dumps(summary, indent=2, default=float) + "\n").encode())
    return summary
