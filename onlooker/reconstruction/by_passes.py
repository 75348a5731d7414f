"""Method "potential" on a log of any size: two passes over its shards, by any number of workers.

What is chosen, and the fit, cost the same however many rows there are; the rows are added up by tasks (`passes`).
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from onlooker.core.messages import Message
from onlooker.core.terminal import progress
from onlooker.data.log.reader import Log, NoRowsError, torn_shards
from onlooker.data.observations import Observations
from onlooker.data.quality import DUPLICATES, inspect, usual_limits
from onlooker.data.quality_sums import QualitySums
from onlooker.data.splits import agents_held_out, balanced, rows_in_held_stretches
from onlooker.data.trainer import Decay, about_trainer, decay_of
from onlooker.data.updates import about_updates
from onlooker.fit.jumps.record import confirmed
from onlooker.fit.jumps.settings import SETTINGS as JUMPS
from onlooker.fit.jumps.statistic import Jump
from onlooker.fit.potential import Potential, begin, kind_for
from onlooker.reconstruction.by_potential import from_potential
from onlooker.reconstruction.draws import Findings
from onlooker.reconstruction.kept import Kept, chosen_digest, run_name
from onlooker.reconstruction.options import Options
from onlooker.reconstruction.passes import Asked, Chosen, Sample, concatenated, footers, sampled, summed, taken
from onlooker.reconstruction.result import Reconstruction
from onlooker.reconstruction.runs import FOOTERS, Run, Shard, rows_at, runs_of, shards_of, some_shards
from onlooker.storage.trees import pack, unpack
from onlooker.workers import Engine

__all__ = ["Looked", "Read", "by_passes", "looked_at", "small"]

# Rows of the sample, and numbers (rows times dimensions) of its points. A log of no more rows is read into memory.
SAMPLE, SAMPLE_NUMBERS = 1 << 18, 1 << 24
# Share by which more rows are asked for than the sample has: the number of those with small keys varies.
SPARE = 1.3
# Shards that are sampled.
SAMPLED = 512
# Share of the rows outside the box from which everything is chosen again, from more shards.
MOST_OUTSIDE = 0.02
# Warnings about the sample that are about all rows: others are found in all of them.
OF_SAMPLE = ("sign-doubtful", "points-flat")


def small(log: Log) -> bool:
    """Whether a log's rows are read into memory: if they are no more than a sample, or not in shards."""
    names = log.shard_names()
    if not log.has_gradients or not all(name.endswith(".parquet") for name in names):
        return True
    rows = 0
    for first in range(0, len(names), FOOTERS):
        # Only until it is known: workers may read the others.
        rows += sum(max(footer.rows, 0) for footer in log.footers(names[first : first + FOOTERS]).values())
        if rows > _most(log.dim):
            return False
    return True


def _most(dim: int) -> int:
    return min(SAMPLE, SAMPLE_NUMBERS // dim)


class Read(NamedTuple):
    """A log that was read by passes, and what was found.

    Attributes
    ----------
    result
        The result.
    potential
        The fitted reward.
    seen
        The sample.
    jumps
        Jumps of the reward, in numbers of rows of the log.
    rows
        Number of rows of the log.
    numbers
        Numbers about the learners' updates, by name.
    """

    result: Reconstruction
    potential: Potential
    seen: Observations
    jumps: list[Jump]
    rows: int
    numbers: dict[str, Any]


class Looked(NamedTuple):
    """What is known about a log without a fit.

    Attributes
    ----------
    seen
        The sample.
    quality
        What is known about all rows.
    warnings
        Warnings about them.
    numbers
        Numbers about the learners' updates, by name.
    jump
        The number of the row in the log at which the reward may have jumped last.
    rows
        Number of rows of the log.
    """

    seen: Observations
    quality: QualitySums
    warnings: list[Message]
    numbers: dict[str, Any]
    jump: int | None
    rows: int


class _Choice(NamedTuple):
    """What was chosen, from which rows, and what was found about these."""

    chosen: Chosen
    seen: Observations
    warnings: list[Message]
    numbers: dict[str, Any]


class _Total(NamedTuple):
    """Sums over all rows."""

    sums: Any
    quality: QualitySums
    jumps: np.ndarray
    torn: set[str]


def by_passes(log: Log, options: Options, engine: Engine, checkpoint: Any = None) -> Read:
    """Reconstruct from a log; parameters are those of `reconstruct`, of which ``options`` has most."""
    return _Passes(log, options, engine, checkpoint).result()


def looked_at(log: Log, seed: int, engine: Engine, checkpoint: Any = None) -> Looked:
    """The same passes without a fit."""
    passes = _Passes(log, Options(1.0, 1, seed), engine, checkpoint, fit=False)
    shards = passes._shards()
    choice, total = passes._passed(shards)
    log.torn |= total.torn
    warnings = passes._warnings(choice, total)
    jump = int(total.jumps[-1, 0]) if len(total.jumps) else None
    return Looked(choice.seen, total.quality, warnings, choice.numbers, jump, shards[-1].end)


class _Passes:
    """The passes over a log; with ``fit=False``, rows are counted and watched only."""

    def __init__(self, log: Log, options: Options, engine: Engine, checkpoint: Any, fit: bool = True) -> None:
        self.began, self.fit = time.perf_counter(), fit
        self.log, self.options, self.engine = log, options, engine
        self.kept = None if checkpoint is None else Kept(checkpoint)
        # Sent to workers, which need neither footers nor directions, and may be in another folder.
        self.sent = replace(log, path=log.path.absolute(), known_footers={}, _projection=None, torn=set(log.torn))
        # Known when all shards have said what they know of the trainer.
        self.decay: Decay | None = None
        self.settings: tuple[Any, ...] = ()

    def result(self) -> Read:
        """Pass after pass, until the sample's box holds the rows and no shard is there twice."""
        shards, repeated = self._shards(), 0
        choice, total = self._passed(shards)
        if total.sums.outside > MOST_OUTSIDE * (total.sums.count + total.sums.outside):
            choice, total = self._passed(shards, again=True)
        twice = total.quality.repeated_shards()
        if total.quality.duplicated > DUPLICATES and twice.any():
            read = [shard for shard in shards if shard.name not in total.torn]
            if len(read) == len(twice):
                repeated = sum(shard.rows for shard, drop in zip(read, twice, strict=True) if drop)
                left = [shard for shard, drop in zip(read, twice, strict=True) if not drop]
                shards = shards_of([shard.name for shard in left], [shard.rows for shard in left])
                choice, total = self._passed(shards)
        self.log.torn |= total.torn
        return self._concluded(shards, choice, total, repeated)

    def _shards(self) -> list[Shard]:
        """Pass 0: the shards and their numbers of rows."""
        names = self.log.shard_names()
        unread = [name for name in names if name not in self.log.known_footers]
        parts = [unread[first : first + FOOTERS] for first in range(0, len(unread), FOOTERS)]
        if len(parts) > 1:
            for part, found in zip(parts, self.engine.each(footers, parts, self.sent), strict=True):
                self.log.known_footers |= dict(zip(part, found, strict=True))
        found = list(self.log.footers(names).values())
        log, options = self.log, self.options
        log.torn |= {name for name, footer in zip(names, found, strict=True) if footer.rows < 0}
        log.note(found)
        self.decay = decay_of(log.trainer, log.projection, log.dim, options.objective)
        self.settings = (
            log.name,
            log.dim,
            options.seed,
            options.about.get("coordinates"),
            sorted(log.believed.items(), key=repr),
            None if self.decay is None else [np.asarray(part).tolist() for part in self.decay],
        )
        shards = shards_of(names, [footer.rows for footer in found])
        if not shards:
            raise NoRowsError(f"{self.log.path} has no rows yet; wait until some have been written.")
        return shards

    def _passed(self, shards: list[Shard], again: bool = False) -> tuple[_Choice, _Total]:
        """Passes 1 and 2; ``again`` if everything must be chosen from more shards than before."""
        runs = runs_of(shards, self.log.dim)
        choice = self._chosen(*self._sample(runs, again))
        return choice, self._summed(runs, choice.chosen)

    def _sample(self, runs: list[Run], again: bool) -> tuple[Sample, int]:
        """Pass 1: the sample, and the number of rows of the log that it was drawn from."""
        rows = runs[-1].end
        settings = (*self.settings, "all shards") if again else self.settings
        if self.kept is not None and (found := self.kept.sample(settings, rows)) is not None:
            return found
        some = [run._replace(before=(), after=()) for run in runs] if again else some_shards(runs, SAMPLED)
        most, there = _most(self.log.dim), sum(shard.rows for run in some for shard in run.shards)
        share = min(1.0, SPARE * most / there)
        asked = Asked(self.sent, self.options.seed, share, self.options.coordinates, self.decay)
        parts, done = [], 0
        with progress("sampling", there, None) as report:
            for run, part in zip(some, self.engine.each(sampled, some, asked), strict=True):
                parts.append(part)
                done += sum(shard.rows for shard in run.shards)
                report(done)
        seen = concatenated([part.seen for part in parts if len(part.seen)], self.log.dim)
        keys = np.concatenate([part.keys for part in parts])
        if len(keys) > most:
            inside = keys <= np.partition(keys, most - 1)[most - 1]
            seen = taken(seen, inside)
            keys = keys[inside]
        torn = frozenset[str]().union(*(part.torn for part in parts))
        sample = Sample(keys, seen, torn, sum(part.rejected for part in parts))
        if not len(seen):
            raise ValueError(
                f"{self.log.path} has no row without a NaN or an infinity; there is nothing to learn from."
            )
        if self.kept is not None:
            self.kept.keep_sample(settings, sample, rows)
        return sample, rows

    def _chosen(self, sample: Sample, rows: int) -> _Choice:
        """Everything that sums depend on, from the sample."""
        options, seen = self.options, replace(sample.seen, trainer=self.log.trainer, projection=self.log.projection)
        if seen.agents is not None and seen.agents.dtype.kind not in "iufb":
            names, codes = np.unique(seen.agents, return_inverse=True)
            seen = replace(seen, agents=codes, agent_names=names)
        limits = usual_limits(seen.points, seen.gradients)
        numbered = seen.rows
        # In numbers of the sample, as `inspect` counts.
        checked, warnings = inspect(replace(seen, rows=None), closed=options.interval is not None)
        assert numbered is not None
        places = numbered if checked.rows is None else numbered[checked.rows]
        numbers, updates = about_updates(checked)
        held, by_agent = rows_in_held_stretches(places, rows, options.seed), False
        if checked.agents is not None:
            by_name = agents_held_out(checked.agents, options.seed, checked.agent_names)
            by_agent = balanced(by_name)
            held = by_name if by_agent else held
        given = checked.points, checked.gradients, held, options.seed, options.interval, checked.agents
        sums = begin(*given) if self.fit else None
        # A loss scale that changes looks like a jump of the reward.
        watched = all(message.code != "loss-scaled" for message in updates)
        chosen = Chosen(self.sent, options.seed, rows, by_agent, limits, sums, options.coordinates, self.decay, watched)
        kept = [message for message in warnings if message.code in OF_SAMPLE]
        return _Choice(chosen, replace(checked, rows=None), [*kept, *updates], numbers)

    def _summed(self, runs: list[Run], chosen: Chosen) -> _Total:
        """Pass 2: the sums of all runs, added in the order of the log."""
        names = [""] * len(runs)
        if self.kept is not None:
            digest = chosen_digest(chosen, self.settings)
            names = [run_name(run, digest) for run in runs]
        kind, begun = kind_for(self.log.dim).sums, pack(chosen.sums)
        total = _Total(chosen.sums, QualitySums.none(self.log.dim), np.zeros((0, 4)), set())
        with progress("adding up", runs[-1].end, None) as report:
            for run, arrays in zip(runs, self._parts(runs, names, chosen), strict=True):
                changed = {name[5:]: part for name, part in arrays.items() if name.startswith("sums/")}
                quality = {name[8:]: part for name, part in arrays.items() if name.startswith("quality/")}
                total = _Total(
                    total.sums.joined(unpack(kind, begun | changed)) if self.fit else None,
                    total.quality.joined(unpack(QualitySums, quality)),
                    np.concatenate([total.jumps, arrays["jumps"]]),
                    total.torn | set(arrays["torn"].tolist()),
                )
                report(run.end)
        return total

    def _parts(self, runs: list[Run], names: list[str], chosen: Chosen) -> Iterator[dict[str, np.ndarray]]:
        """The sums of each run: those that were kept, or new ones, which are kept."""
        kept = self.kept
        if kept is None:
            yield from self.engine.each(summed, runs, chosen)
            return
        known = {name for name in names if kept.has(name)}
        new = self.engine.each(
            summed, [run for run, name in zip(runs, names, strict=True) if name not in known], chosen
        )
        for run, name in zip(runs, names, strict=True):
            if name not in known:
                arrays = next(new)
                kept.keep_sums(name, arrays)
            elif (found := kept.sums(name)) is None:
                # Damaged: made again, by this process.
                (arrays,) = self.engine.each(summed, [run], chosen)
                kept.keep_sums(name, arrays)
            else:
                arrays = found
            yield arrays

    def _concluded(self, shards: list[Shard], choice: _Choice, total: _Total, repeated: int) -> Read:
        """The fit, and what it confirms."""
        log, options, quality, dim = self.log, self.options, total.quality, self.log.dim
        low, high = quality.low[:dim], quality.high[:dim]
        if (low == high).any():
            raise ValueError(f"points never move along coordinate {int(np.argmax(low == high))}; leave it out.")
        seen = replace(choice.seen, rejected=quality.rejected)
        potential = total.sums.fit().judged(seen.points, seen.gradients, seen.agents, options.seed)
        warnings = [*([torn_shards(len(log.torn))] if log.torn else []), *_about_repeated(repeated, quality.rows)]
        warnings += self._warnings(choice, total)
        seconds = time.perf_counter() - self.began
        result = from_potential(potential, seen, warnings, options, seconds, quality.rows)
        jumps = [
            Jump(int(at), int(found), statistic, threshold)
            for at, found, statistic, threshold in total.jumps.tolist()
            if self._confirmed(int(at), shards, choice.chosen, potential)
        ]
        counted = {"observations": quality.rows, "sampled": len(seen), **choice.numbers}
        found = result.found
        found = Findings({**found.diagnostics, **counted}, found.warnings)
        result = replace(result, found=found, projection=log.projection)
        return Read(result, potential, seen, jumps, shards[-1].end, choice.numbers)

    def _warnings(self, choice: _Choice, total: _Total) -> list[Message]:
        """What the trainer did, by the sample's marks; and warnings about all rows."""
        log, along = self.log, self.log.projection
        told = about_trainer(choice.seen, self.options.objective)
        rows = total.quality.messages(log.dim, log.trainer.recorded)
        return [*([] if along is None else [along.warning]), *told, *rows, *choice.warnings]

    def _confirmed(self, row: int, shards: list[Shard], chosen: Chosen, potential: Potential) -> bool:
        """Whether the rows about a jump confirm it; the driver reads them."""
        near = rows_at(self.log, shards, row, JUMPS.confirmed_by, chosen.limits, chosen.coordinates, chosen.decay)
        assert near.rows is not None
        at = int(np.searchsorted(near.rows, row))
        return confirmed(Jump(at, at, 0.0, 0.0), near, potential)


def _about_repeated(rows: int, others: int) -> list[Message]:
    """A warning if rows were in shards that have the rows of other shards."""
    if not rows:
        return []
    text = (
        f"{rows} of {rows + others} observations are in shards that have the rows of other shards, and were dropped: "
        "counted twice they would make error bars too small."
    )
    return [Message("rows-duplicated", text, {"dropped": rows, "rows": rows + others})]
