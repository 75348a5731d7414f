"""A result in a folder, for people and programs: result.zarr, its pictures, and summary.json about all of them."""

import json
from pathlib import Path
from typing import Any

from onlooker.reconstruction import STORE, Reconstruction
from onlooker.reward.plots import save

__all__ = ["SUMMARY", "write_result"]

SUMMARY = "summary.json"


def write_result(folder: Path, result: Reconstruction, **about: Any) -> dict[str, Any]:
    """Write a result, its pictures and its summary into a folder; what the summary says, which ``about`` adds to."""
    result.save(folder / STORE)
    figures = {"landscape.png": result.landscape(), "samples.png": result.plot()}
    for name, figure in figures.items():
        save(figure, folder / name)
    maximum = result.maximum()
    summary = {
        **about,
        "method": result.method,
        "maximum": maximum.tolist(),
        "maximum_explored": bool(result.explored(maximum[None])[0]),
        "diagnostics": result.diagnostics,
        "warnings": result.warnings,
        "files": [STORE, *figures],
    }
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, default=float) + "\n")
    return summary
