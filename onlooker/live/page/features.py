"""The page of an Observer of features: bars of weights with 95 % intervals, and the weights over time.

One thread reads rows, learns from them, and solves for the weights a few times a second. What cannot be known of the
weights is taken out of the bars, and named in the warnings.
"""

import html
import time
import traceback
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np
from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, Div, Span, Whisker
from bokeh.palettes import Category10
from bokeh.plotting import figure

from onlooker.core.messages import Message, undelivered
from onlooker.explanation.features import as_features
from onlooker.explanation.result import Explanation
from onlooker.live.features import FeatureObserver
from onlooker.live.page.page import EVERY as UPDATED
from onlooker.live.page.page import STYLE
from onlooker.live.page.source import Resumable, Source
from onlooker.live.page.watch import Status

__all__ = ["FeaturePage", "FeatureWatch"]

TITLE = "What do these learners want?"
# Seconds between two solutions, and moments that are kept: beyond, every second one is dropped.
EVERY, MOMENTS = 0.5, 400
# Standard errors of a 95 % interval, in the picture over time.
WIDE = 1.96
# Seconds between two checkpoints.
SAVED_AFTER = 30.0


class Moment(NamedTuple):
    """The weights after a number of observations: (k,) and their errors."""

    seen: int
    weights: np.ndarray
    errors: np.ndarray


class FeatureWatch:
    """Learns the weights of features from a source.

    Parameters
    ----------
    source
        Source of the rows.
    features
        ψ: a function of one point in jax.numpy.
    names
        Names of the features.
    forgetting
        As for `Observer`.
    checkpoint
        File to which the observer is saved. If it exists, watching resumes from it.

    Attributes
    ----------
    look
        Always ``None``: there is no reward to be drawn over the points.
    why
        The latest explanation.
    moments
        The weights over time.
    """

    look = None

    def __init__(
        self,
        source: Source,
        features: Any,
        names: Any = None,
        forgetting: float | str | None = "adaptive",
        checkpoint: Path | None = None,
    ) -> None:
        self.source, self.forgetting, self.checkpoint = source, forgetting, checkpoint
        self._features = as_features(features, None, names)
        # A wrong rate is reported now, not when the first rows arrive.
        FeatureObserver(1, self._features, forgetting=forgetting)
        self.observer: FeatureObserver | None = None
        if checkpoint is not None:
            if not isinstance(source, Resumable):
                raise ValueError(f"{source.name} cannot be resumed; do not give a checkpoint.")
            if checkpoint.exists():
                self.observer = FeatureObserver.load(checkpoint, self._features)
                source.resume(self.observer.log, self.observer.position)
        self.why: Explanation | None = None
        self.moments: list[Moment] = []
        self.warnings: list[Message] = []
        self._trouble = self._waiting_for = ""
        self._over = False
        self._last_row = self._saved_at = time.monotonic()
        self._stop, self._lock = Event(), Lock()
        self._began = time.monotonic(), 0
        self._thread = Thread(target=self._guarded, daemon=True)

    def start(self) -> "FeatureWatch":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop learning."""
        self._stop.set()
        self._thread.join(timeout=1)

    def status(self) -> Status:
        """What is known of the rows."""
        observer, failed = self.observer, bool(self._trouble)
        seen = 0 if observer is None else observer.seen
        known = 0.0 if self.why is None or observer is None else observer.effective_observations
        rate = seen / max(time.monotonic() - self._began[0], 1e-9)
        return Status(
            seen,
            0 if observer is None else observer.rejected,
            known,
            rate,
            0.0,
            [] if observer is None else observer.jumps,
            " ".join(filter(None, (self._trouble, self.source.message))),
            self._waiting_for if self.why is None or self._over else "",
            time.monotonic() - self._last_row,
            self._over or failed,
            failed,
        )

    def _guarded(self) -> None:
        try:
            with undelivered():
                self._learn()
        except Exception as error:
            self._trouble = f"watching has stopped: {error}"
            if not isinstance(error, ValueError):
                traceback.print_exc()

    def _learn(self) -> None:
        solved = 0.0
        for batch in self.source.batches(self._stop.is_set):
            if batch.replaced:
                self.observer, self.why, self.moments = None, None, []
            if self.observer is None:
                self.observer = FeatureObserver(batch.points.shape[1], self._features, forgetting=self.forgetting)
            for few in np.array_split(np.arange(len(batch.points)), max(1, len(batch.points) // 200)):
                agents = None if batch.agents is None else batch.agents[few]
                self.observer.learn_many(batch.points[few], batch.gradients[few], agents)
                if time.monotonic() - solved > EVERY:
                    self._solve(self.observer)
                    solved = time.monotonic()
            self.observer.log, self.observer.position = batch.log, batch.position
            self._last_row = time.monotonic()
            if self._last_row - self._saved_at > SAVED_AFTER:
                self._save()
        if self.observer is not None:
            self._solve(self.observer)
        self._save()
        self._over = not self._stop.is_set()

    def _solve(self, observer: FeatureObserver) -> None:
        try:
            why = observer.explanation()
        except ValueError as error:
            self._waiting_for = str(error)
            return
        with self._lock:
            self.why, self.warnings, self._waiting_for = why, [*self.source.warnings, *why.warnings], ""
            self.moments.append(Moment(observer.seen, *why.part_known))
            if len(self.moments) > MOMENTS:
                self.moments = self.moments[::2]

    def _save(self) -> None:
        self._saved_at = time.monotonic()
        if self.checkpoint is not None and self.observer is not None:
            self.observer.save(self.checkpoint)


class FeaturePage:
    """One browser's view of a `FeatureWatch`."""

    def __init__(self, watch: FeatureWatch, document: Document) -> None:
        self._watch = watch
        self._heading, self._numbers, self._warnings = (
            Div(stylesheets=[STYLE], sizing_mode="stretch_width", name=name)
            for name in ("heading", "numbers", "warnings")
        )
        self._body = column(Div(), sizing_mode="stretch_width")
        self._bars: ColumnDataSource | None = None
        self._lines: list[ColumnDataSource] = []
        self._over_time: Any = None
        self._drawn = self._jumps = 0
        document.title = "Onlooker"
        parts = (self._heading, self._numbers, self._warnings, self._body)
        document.add_root(column(*parts, sizing_mode="stretch_width", margin=14))
        document.config.notify_connection_status = False
        self.update()
        document.add_periodic_callback(self.update, UPDATED)

    def update(self) -> None:
        """Show what has changed."""
        status, why = self._watch.status(), self._watch.why
        self._say(status, why)
        if why is None or self._drawn == self._watch.moments[-1].seen:
            return
        if self._bars is None:
            self._begin(why)
        assert self._bars is not None
        known = np.eye(len(why.found.values)) - why.found.unidentified @ why.found.unidentified.T
        value, _ = why.found.contrast(known)
        low, high = (np.nan_to_num(edge, posinf=0, neginf=0) for edge in why.found.interval(known))
        names = [*why.names, *(f"{name}?" for name in why.suspected)]
        self._bars.data = {"name": names, "weight": value, "low": low, "high": high}
        moments = list(self._watch.moments)
        seen = [moment.seen for moment in moments]
        for number, line in enumerate(self._lines):
            weight = np.array([moment.weights[number] for moment in moments])
            error = WIDE * np.array([moment.errors[number] for moment in moments])
            line.data = {"seen": seen, "weight": weight, "low": weight - error, "high": weight + error}
        for jump in status.jumps[self._jumps :]:
            self._over_time.add_layout(Span(location=jump.at, dimension="height", line_dash="dotted"))
        self._jumps, self._drawn = len(status.jumps), seen[-1]

    def _begin(self, why: Explanation) -> None:
        names = [*why.names, *(f"{name}?" for name in why.suspected)]
        self._bars = ColumnDataSource({"name": [], "weight": [], "low": [], "high": []})
        bars = figure(x_range=names, width=max(360, 90 * len(names)), height=360, name="bars", title="weights")
        bars.vbar("name", top="weight", width=0.7, source=self._bars, fill_alpha=0.8)
        bars.add_layout(Whisker(base="name", upper="high", lower="low", source=self._bars))
        self._over_time = figure(width=640, height=360, name="over-time", title="weights over time")
        self._over_time.xaxis.axis_label = "observations"
        palette = Category10[10]
        self._lines = []
        for number, name in enumerate(why.names):
            line = ColumnDataSource({"seen": [], "weight": [], "low": [], "high": []})
            shade = palette[number % len(palette)]
            self._over_time.varea("seen", "low", "high", source=line, fill_alpha=0.2, fill_color=shade)
            self._over_time.line("seen", "weight", source=line, line_color=shade, legend_label=name)
            self._lines.append(line)
        self._over_time.legend.location = "left"
        self._over_time.legend.click_policy = "hide"
        for one in (bars, self._over_time):
            one.toolbar.logo = None
        self._body.children = [row(bars, self._over_time, spacing=8)]

    def _say(self, status: Status, why: Explanation | None) -> None:
        state = "stopped" if status.failed else "finished" if status.over else "live" if status.seen else "waiting"
        message = "".join(
            f'<p class="{tone}">{html.escape(text)}</p>'
            for tone, text in (("bad", status.message), ("quiet", status.waiting_for))
            if text
        )
        watched = html.escape(self._watch.source.name)
        self._heading.text = f"<h1>{TITLE}</h1><p>Onlooker watches {watched}: {state}</p>{message}"
        tiles = [(f"{status.seen:,}", "observations"), (f"{len(status.jumps)}", "jumps of the weights")]
        if why is not None:
            tiles += [(f"{why.explained:.0%}", "of what they follow is explained"), (f"{why.misfit:.1f}", "misfit z")]
        shown = "".join(f'<div class="tile"><b>{number}</b><span>{words}</span></div>' for number, words in tiles)
        self._numbers.text = f'<div class="tiles">{shown}</div>'
        listed = "".join(f"<li>{html.escape(str(message))}</li>" for message in self._watch.warnings)
        none = "" if why is None else '<p class="quiet">No warnings.</p>'
        self._warnings.text = f'<p class="bad">Warnings:</p><ul>{listed}</ul>' if listed else none
