"""What `quality.inspect` asks of all rows, as sums over them: for a log that is too large for memory.

Equal rows have equal fingerprints, so the share of duplicates among those in a part of the hash range is that among
all rows. The rows of a whole shard have a digest of their own, which finds a folder that was copied twice.
"""

from dataclasses import dataclass, replace

import numpy as np

from onlooker.core.messages import Message
from onlooker.data.agents_seen import AgentsSeen
from onlooker.data.observations import Observations
from onlooker.data.quality import DUPLICATES, about_number, about_runaways, about_steps, fingerprints

__all__ = ["QualitySums", "Sketch"]

# Fingerprints that are kept at most: 8 MB, from which a share of .01 is known to a hundredth of itself.
FINGERPRINTS = 1 << 20
MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sketch:
    """Which fingerprints are kept: those whose mixed bits begin with so many zeros."""

    zeros: int

    @classmethod
    def of(cls, rows: int) -> "Sketch":
        """For a log of so many rows."""
        return cls(max(0, int(np.ceil(np.log2(max(rows, 1) / FINGERPRINTS)))))

    def kept(self, prints: np.ndarray) -> np.ndarray:
        """Those of the fingerprints (n,) that are kept."""
        if not self.zeros:
            return prints
        with np.errstate(over="ignore"):
            return prints[(prints * MIX) >> np.uint64(64 - self.zeros) == 0]


@dataclass(frozen=True)
class QualitySums:
    """Counts, extremes and sketches of rows.

    Attributes
    ----------
    rows
        Number of rows that were kept.
    rejected
        Number of rows with a NaN or an infinity.
    runaways
        Number of rows beyond the limits.
    low, high
        Extremes (2·dim,) of points and gradients.
    prints
        Fingerprints that are kept.
    digests
        (shards, 3): of each shard, the number of rows, and the sum and the parity of their fingerprints.
    agents
        What is known about agents; none if they are unknown.
    """

    rows: int
    rejected: int
    runaways: int
    low: np.ndarray
    high: np.ndarray
    prints: np.ndarray
    digests: np.ndarray
    agents: AgentsSeen

    @classmethod
    def none(cls, dim: int) -> "QualitySums":
        """Of no rows."""
        return cls(
            0,
            0,
            0,
            np.full(2 * dim, np.inf),
            np.full(2 * dim, -np.inf),
            np.zeros(0, np.uint64),
            np.zeros((0, 3), np.uint64),
            AgentsSeen.none(),
        )

    def joined(self, other: "QualitySums") -> "QualitySums":
        """Of the rows of both."""
        return QualitySums(
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.runaways + other.runaways,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.concatenate([self.prints, other.prints]),
            np.concatenate([self.digests, other.digests]),
            self.agents.joined(other.agents),
        )

    def plus(self, kept: Observations, rejected: int, runaways: int, sketch: Sketch) -> "QualitySums":
        """With more rows of the last shard; agents are counted elsewhere."""
        prints = fingerprints(kept)
        digests = self.digests.copy()
        with np.errstate(over="ignore"):
            digests[-1] += np.array([len(kept), prints.sum(dtype=np.uint64), 0], np.uint64)
        digests[-1, 2] ^= np.bitwise_xor.reduce(prints, initial=np.uint64(0))
        low, high = self.low, self.high
        if len(kept):
            columns = kept.points, kept.gradients
            low = np.minimum(low, np.concatenate([part.min(axis=0) for part in columns]))
            high = np.maximum(high, np.concatenate([part.max(axis=0) for part in columns]))
        return replace(
            self,
            rows=self.rows + len(kept),
            rejected=self.rejected + rejected,
            runaways=self.runaways + runaways,
            low=low,
            high=high,
            prints=np.concatenate([self.prints, sketch.kept(prints)]),
            digests=digests,
        )

    @property
    def duplicated(self) -> float:
        """Share of the rows that are equal to an earlier one."""
        return 1 - len(np.unique(self.prints)) / len(self.prints) if len(self.prints) else 0.0

    def repeated_shards(self) -> np.ndarray:
        """Mask (shards,) of those that have the rows of an earlier one."""
        _, first, which = np.unique(self.digests, axis=0, return_index=True, return_inverse=True)
        return (first[which.reshape(-1)] != np.arange(len(self.digests))) & (self.digests[:, 0] > 0)

    def messages(self, dim: int, sign_known: bool = False) -> list[Message]:
        """Warnings about the rows; none about the sign of gradients if a recorder read them."""
        warnings = []
        if self.rejected:
            total = self.rows + self.runaways + self.rejected
            text = f"{self.rejected} of {total} observations held a NaN or an infinity and were rejected."
            warnings.append(Message("rows-rejected", text, {"rejected": self.rejected, "rows": total}))
        if self.runaways:
            warnings.append(about_runaways(self.runaways, self.rows + self.runaways))
        if self.duplicated > DUPLICATES:
            count = round(self.duplicated * self.rows)
            text = (
                f"about {count} of {self.rows} observations are duplicates of rows elsewhere in the log and were "
                "counted twice: error bars are too small. Remove them."
            )
            warnings.append(Message("rows-duplicated", text, {"dropped": 0, "duplicates": count, "rows": self.rows}))
        flat = self.low == self.high
        if flat[dim:].all():
            text = "gradients are all equal: as far as was seen the reward is a plane without a maximum."
            warnings.append(Message("gradients-equal", text))
        elif len(self.agents.cosines) and not sign_known:
            warnings += about_steps(self.agents.cosines)
        if self.agents.number:
            warnings += about_number(self.agents.number, dim)
        return warnings
