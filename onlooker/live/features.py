"""The weights of features at any time from observations as they arrive: an Observer of ŵ in R(θ) = w·ψ(θ).

Rows are added to the sums of `onlooker.fit.linear` by blocks, so that ŵ is the same, to the last bit, however they are
divided into calls; memory does not grow with their number, nor with more than k times the dimension. All rows are
tested for jumps of w. Adaptive forgetting forgets nothing until a jump is detected, and then everything before it.
"""

import json
from collections.abc import Hashable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from onlooker.core.blas import one_thread
from onlooker.core.messages import Message, deliver, in_short
from onlooker.core.settings import check_whole
from onlooker.data.log.reader import Log, open_log
from onlooker.data.log.tail import Batch, available, check_same_log
from onlooker.data.observations import observe
from onlooker.explanation.explain import FEWEST, explained_by
from onlooker.explanation.features import Features, as_features
from onlooker.explanation.gathered import Gathered, gather
from onlooker.explanation.result import Explanation
from onlooker.fit.jumps import Jump
from onlooker.fit.linear import LinearSums
from onlooker.fit.linear_jumps import SETTINGS as JUMPS
from onlooker.fit.linear_jumps import WeightWatch
from onlooker.live.settings import ADAPTIVE, check_forgetting
from onlooker.live.settings import SETTINGS as LIVE
from onlooker.storage import state_file
from onlooker.storage.trees import pack, unpack

__all__ = ["FeatureObserver"]

KIND = "FeatureObserver"
# Rows that D of the sums is computed from, fewer of very large points.
FIRST, NUMBERS = 64, 1 << 22
# Rows of sums that are kept: older ones are summed in pairs.
MOST_ROWS = 1024


class FeatureObserver:
    """Reads the weights of features off learners while observations of them arrive.

    ``onlooker.Observer(dim, features=…)`` makes one.

    Parameters
    ----------
    dim
        Dimension of the points.
    features
        ψ: a function of one point that JAX differentiates, or what `onlooker.tabular` returns.
    names
        Names of the features.
    forgetting
        γ: the share of its weight that an observation loses with every later one; default: nothing is forgotten. With
        "adaptive", everything before a jump of the weights is forgotten when the jump is detected.

    Attributes
    ----------
    rejected
        Number of observations rejected because they contain a NaN or an infinity.
    log
        Name of the log that was read; empty if there is none.
    position
        Position in that log after the last row that was read.
    """

    def __init__(self, dim: int, features: Any, *, names: Any = None, forgetting: float | str | None = None) -> None:
        check_whole(dim=dim)
        check_forgetting(forgetting)
        self.dim, self.forgetting = int(dim), forgetting
        self.features: Features = as_features(features, None, names)
        if self.features.by_row is not None:
            raise ValueError("features are known for given rows only; an Observer needs a function of any point.")
        self.rejected, self.log, self.position = 0, "", ""
        self._waiting: list[tuple[Any, ...]] = []
        self._taken = 0
        self._numbered = 0
        self._gathered: Gathered | None = None
        self._watch: WeightWatch | None = None
        self._lock = RLock()
        self._said: set[str] = set()
        self._why: tuple[int, Explanation] | None = None

    @property
    def seen(self) -> int:
        """Number of observations so far, including those of an incomplete block, which are not yet in ŵ."""
        return self._taken + sum(len(part[0]) for part in self._waiting)

    def learn_one(self, point: Any, gradient: Any, agent: Hashable | None = None) -> None:
        """Add one observation; see `learn_many`."""
        owner = None if agent is None else [str(agent)]
        self.learn_many(np.atleast_1d(np.asarray(point))[None], np.atleast_1d(np.asarray(gradient))[None], owner)

    def learn_many(self, points: Any, gradients: Any, agents: Any = None) -> None:
        """Add observations, in the order in which they were made.

        Parameters
        ----------
        points
            (n, dim): the points.
        gradients
            (n, dim): the ascent gradients at the points.
        agents
            (n,): the agents' names, if they are known.
        """
        if not np.size(points) and not np.size(gradients):
            return
        new = observe(points, gradients, agents=agents)
        if new.dim != self.dim:
            raise ValueError(f"points has {new.dim} dimensions but the observer {self.dim}; give (n, {self.dim}).")
        names = np.full(len(new), "") if new.agents is None else new.agents
        with self._lock, one_thread():
            self.rejected += new.rejected
            self._waiting.append((new.points, new.gradients, names.astype(str)))
            while self._enough():
                self._take(*self._next())
        self._say(new.warnings)

    def _size(self) -> int:
        """Number of rows in the next block: the sample that begins the sums, then as many as between two looks."""
        if self._gathered is None:
            return int(np.clip(NUMBERS // self.dim, FEWEST, FIRST))
        return JUMPS.every

    def _enough(self) -> bool:
        return sum(len(part[0]) for part in self._waiting) >= self._size()

    def _next(self) -> tuple[Any, ...]:
        """The next block of rows, which are then no longer waiting."""
        size = self._size()
        columns = [np.concatenate(part) for part in zip(*self._waiting, strict=True)]
        self._waiting = [tuple(column[size:] for column in columns)]
        return tuple(column[:size] for column in columns)

    def _take(self, points: np.ndarray, gradients: np.ndarray, agents: np.ndarray) -> None:
        rows = np.arange(len(points))
        if self._gathered is None:
            self._gathered = gather(self.features, points, gradients, rows)
            self._watch = WeightWatch(self._gathered.count)
        for part in np.array_split(rows, max(1, len(rows) // JUMPS.every)):
            if isinstance(self.forgetting, float):
                self._gathered.forget(1 - (1 - self.forgetting) ** len(part))
            self._gathered.add(points[part], gradients[part], agents[part] if agents.any() else None)
            self._taken += len(part)
            self._look()
            self._gathered.sums.compress(MOST_ROWS)

    def _look(self) -> None:
        assert self._gathered is not None
        assert self._watch is not None
        sums = self._gathered.sums
        if self._watch.look(sums) and self.forgetting == ADAPTIVE:
            kept = sums.since(self._watch.since)
            self._gathered = replace(self._gathered, sums=kept)

    def learn_log(self, log: Any, *, checkpoint: Any = None, every: int = LIVE.checkpoint_every) -> int:
        """Learn the log's new rows; return their number.

        Parameters
        ----------
        log
            A path, or a log that `open_log` opened.
        checkpoint
            File to save the observer to, at intervals and at the end.
        every
            Number of observations between two checkpoints.
        """
        log = log if isinstance(log, Log) else open_log(log)
        check_same_log(log, self.log)
        before = saved = self.seen
        for batch in available(log, self.position):
            self.learn_batch(batch)
            if checkpoint is not None and self.seen - saved >= every:
                self.save(checkpoint)
                saved = self.seen
        if checkpoint is not None:
            self.save(checkpoint)
        return self.seen - before

    def learn_batch(self, batch: Batch) -> None:
        """Add rows of a log and set the position after them."""
        with self._lock:
            self.learn_many(batch.points, batch.gradients, batch.agents)
            self.log, self.position = batch.log, batch.position

    def explanation(self) -> Explanation:
        """The current result, as `explain` returns it; its warnings are raised, each code once per Observer."""
        why = self._explained()
        self._say(why.warnings)
        return why

    def _explained(self) -> Explanation:
        with self._lock:
            if self._gathered is None or not len(self._gathered.sums):
                raise ValueError(f"the observer has seen {self.seen} observations; it needs {self._size()} to answer.")
            if self._why is None or self._why[0] != self._taken:
                self._why = self._taken, explained_by(self._gathered, self._about_jumps())
            return self._why[1]

    @property
    def weights(self) -> np.ndarray:
        """ŵ, (k,); nan for those of which only contrasts with others are known."""
        return self._explained().weights

    @property
    def weight_error(self) -> np.ndarray:
        """Standard errors of the weights, (k,)."""
        return self._explained().weight_error

    def contrast(self, weights: Any = None, /, **more: float) -> Any:
        """Σ dᵢwᵢ and its standard error; see `Explanation.contrast`."""
        return self._explained().contrast(weights, **more)

    def reward(self, x: Any) -> np.ndarray:
        """R̂ at x (n, dim), less its mean over the observations; see `Explanation.reward`."""
        return self._explained().reward(x)

    def reward_error(self, x: Any) -> np.ndarray:
        """Standard error of `reward` at x (n, dim)."""
        return self._explained().reward_error(x)

    @property
    def jumps(self) -> list[Jump]:
        """Jumps: ``at`` is the observation before which w changed, ``found`` the one at which it was detected."""
        return [] if self._watch is None else list(self._watch.jumps)

    @property
    def warnings(self) -> list[Message]:
        """Warnings about the observations so far and their weights."""
        return self._explained().warnings

    @property
    def effective_observations(self) -> float:
        """(Σw)²/Σw²: the number of equally weighted observations that ŵ is worth."""
        with self._lock:
            if self._gathered is None:
                return 0.0
            # Rows that were summed in pairs count as one here and two there.
            counts = self._gathered.sums.counts
            return float(counts.sum() ** 2 / max((counts**2).sum(), 1e-300) * max(counts.max(initial=0), 1))

    def _about_jumps(self) -> list[Message]:
        """A warning if ŵ mixes rows from before and after a jump."""
        if not self.jumps or self.forgetting == ADAPTIVE or self._gathered is None:
            return []
        sums, last = self._gathered.sums, self.jumps[-1]
        before = float(sums.counts[sums.order < last.at].sum() / max(sums.count, 1e-300))
        if before < LIVE.worth_warning:
            return []
        ago = self._taken - last.at
        text = (
            f"the weights jumped {ago} observations ago, and {100 * before:.0f} % of the weight in ŵ is from before: ŵ "
            "is a mixture. Use forgetting='adaptive'."
        )
        return [Message("reward-jumped", text, {"ago": ago, "before": before})]

    def _say(self, messages: Iterable[Message]) -> None:
        deliver(messages, said=self._said)

    def save(self, path: Any) -> Path:
        """Save the observer, without ψ, to one file, which is replaced only when it is written completely."""
        with self._lock:
            about: dict[str, Any] = {name: getattr(self, name) for name in ("dim", "forgetting", "rejected", "log")}
            about |= {"position": self.position, "taken": self._taken, "begun": self._gathered is not None}
            about["names"] = list(self.features.names)
            arrays: dict[str, np.ndarray] = {}
            if self._waiting:
                columns = [np.concatenate(part) for part in zip(*self._waiting, strict=True)]
                arrays |= {"waiting/points": columns[0], "waiting/gradients": columns[1]}
                about["waiting"] = columns[2].tolist()
            if self._gathered is not None:
                assert self._watch is not None
                sums = self._gathered.sums
                about |= {"agents": sums.names.tolist(), "count": self._gathered.count, "rows": self._gathered.rows}
                arrays |= pack(replace(sums, names=np.zeros(0)), "sums") | pack(self._watch, "watch")
                if self._gathered.total is not None:
                    arrays["total"] = self._gathered.total
        arrays["about"] = np.asarray(json.dumps(about))
        return state_file.write(Path(path), KIND, state_file.packed(arrays))

    @classmethod
    def load(cls, path: Any, features: Any) -> "FeatureObserver":
        """Load an observer that was saved; it continues with the same results as without the break.

        Parameters
        ----------
        path
            The file.
        features
            ψ, which is not in the file.
        """
        arrays = state_file.read(Path(path), KIND)
        try:
            return cls._restored(arrays, features)
        except MemoryError:
            raise
        except Exception as error:
            # The digest is right, so another program wrote the file; a wrong field can fail anywhere.
            raise ValueError(f"{path} does not hold what an Observer has learnt ({in_short(error)}).") from None

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray], features: Any) -> "FeatureObserver":
        about = json.loads(str(arrays["about"]))
        live = cls(about["dim"], features, forgetting=about["forgetting"])
        if not live.features.names:
            live.features.names = tuple(map(str, about["names"]))
        live.rejected, live.log, live.position = int(about["rejected"]), str(about["log"]), str(about["position"])
        live._taken = int(about["taken"])
        if "waiting" in about:
            parts = arrays["waiting/points"], arrays["waiting/gradients"], np.array(about["waiting"], str)
            if parts[0].shape != parts[1].shape or len(parts[0]) != len(parts[2]):
                raise ValueError("its waiting rows do not match")
            live._waiting = [parts]
        if about["begun"]:
            inner = {name: _under(arrays, name) for name in ("sums", "watch")}
            sums = unpack(LinearSums, inner["sums"])
            sums.names = np.array(about["agents"], str)
            sums.check()
            if sums.scale.shape != (sums.dim,):
                raise ValueError(f"its scale is of shape {sums.scale.shape}")
            total = arrays.get("total")
            live._gathered = Gathered(live.features, sums, int(about["count"]), total, int(about["rows"]))
            live._watch = unpack(WeightWatch, inner["watch"])
        return live


def _under(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {path[len(name) + 1 :]: array for path, array in arrays.items() if path.startswith(f"{name}/")}
