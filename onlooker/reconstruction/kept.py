"""Sums of runs, kept as files: a reconstruction that died resumes, and tomorrow's rows cost only tomorrow's runs.

A file of sums is named by a digest of all that they depend on: the shards, the settings, and what was chosen from the
sample. The sample is kept, too, until the log has grown to several times the size that it had.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from onlooker._version import __version__
from onlooker.data.observations import Observations
from onlooker.reconstruction.passes import Chosen, Sample
from onlooker.reconstruction.runs import Run
from onlooker.storage import state_file
from onlooker.storage.signature import array_parts, digest_of
from onlooker.storage.stores import Place, StorePath, as_place
from onlooker.storage.trees import pack

__all__ = ["Kept", "chosen_digest", "run_name"]

# A sample is used until the log has this many times the rows it was drawn from.
GROWN = 4
# What names of its marks begin with.
MARK = "marks/"


class Kept:
    """A folder of kept sums, on a disk or in a store.

    Parameters
    ----------
    folder
        The folder; it is created.
    """

    def __init__(self, folder: Any) -> None:
        self.folder: Place = as_place(folder)
        self._there: set[str] | None = None
        if isinstance(self.folder, StorePath):
            # An error if there is no such bucket.
            self.folder.files()
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"checkpoint {self.folder} cannot be written ({error.strerror}); give a folder.") from None

    def _read(self, name: str, kind: str) -> dict[str, np.ndarray] | None:
        try:
            return state_file.read(self.folder / name, kind)
        except (FileNotFoundError, ValueError):
            # Damaged files are written again.
            return None

    def _write(self, name: str, kind: str, arrays: dict[str, np.ndarray]) -> None:
        state_file.write(self.folder / name, kind, state_file.packed(arrays))

    def sample(self, settings: Iterable[Any], rows: int) -> tuple[Sample, int] | None:
        """The sample that was drawn with these settings from a log that now has so many rows; and how many it had."""
        arrays = self._read(_sample_name(settings), "sample")
        if arrays is None or not int(arrays["count"]) <= rows <= GROWN * int(arrays["count"]):
            return None
        columns = {name: arrays.get(name) for name in ("points", "gradients", "agents", "times", "rows")}
        marks = {name.removeprefix(MARK): part for name, part in arrays.items() if name.startswith(MARK)}
        seen = Observations(**columns, marks=marks)  # type: ignore[arg-type]
        torn = frozenset(arrays["torn"].tolist())
        return Sample(arrays["keys"], seen, torn, int(arrays["rejected"])), int(arrays["count"])

    def keep_sample(self, settings: Iterable[Any], sample: Sample, rows: int) -> None:
        """Keep a sample of a log of so many rows."""
        seen = sample.seen
        columns = {name: getattr(seen, name) for name in ("points", "gradients", "agents", "times", "rows")}
        arrays = {name: part for name, part in columns.items() if part is not None}
        arrays |= {f"{MARK}{name}": part for name, part in seen.marks.items()}
        arrays |= {"keys": sample.keys, "torn": np.array(sorted(sample.torn), str)}
        arrays |= {"count": np.asarray(rows), "rejected": np.asarray(sample.rejected)}
        self._write(_sample_name(settings), "sample", arrays)

    def has(self, name: str) -> bool:
        """Whether the sums of a run were kept."""
        if self._there is None:
            folder = self.folder
            self._there = (
                {file for file, _, _ in folder.files()} if isinstance(folder, StorePath) else set(os.listdir(folder))
            )
        return name in self._there

    def sums(self, name: str) -> dict[str, np.ndarray] | None:
        """The sums of a run, if they were kept."""
        return self._read(name, "sums")

    def keep_sums(self, name: str, sums: dict[str, np.ndarray]) -> None:
        """Keep the sums of a run."""
        self._write(name, "sums", sums)


def _sample_name(settings: Iterable[Any]) -> str:
    return f"sample-{digest_of([repr((__version__, *settings)).encode()]).hexdigest()[:32]}.state"


def chosen_digest(chosen: Chosen, settings: Iterable[Any]) -> str:
    """A digest of all that sums depend on but their rows."""
    arrays = [*pack(chosen.sums).values(), *chosen.limits]
    words = repr((__version__, *settings, chosen.count, chosen.by_agent, chosen.watched, chosen.seed))
    return digest_of([words.encode(), *array_parts(np.asarray(part) for part in arrays)]).hexdigest()


def run_name(run: Run, chosen: str) -> str:
    """The name of the file of a run's sums."""
    digest = digest_of([chosen.encode(), repr((run.shards, run.before, run.after)).encode()])
    return f"{digest.hexdigest()[:32]}.sums"
