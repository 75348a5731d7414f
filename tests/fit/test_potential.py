"""A fit is one file and one line: a toy goes all the way; and sums are the same however they are made."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import onlooker
from onlooker.core.messages import Message
from onlooker.fit import potential as fits
from onlooker.fit.climb import climbed
from onlooker.fit.cosine_potential_sums import begin_cosine_potential
from onlooker.fit.sample import Drawn
from onlooker.fit.sums import FitKind, KeptRows
from onlooker.live.page.picture import curve_along, map_of, view_box
from onlooker.reconstruction.report import write_report
from onlooker.testing import FIT_CHECKS, BrokenError, FitCase, check_fit
from tests.support.messages import codes


@dataclass(frozen=True)
class Bowl:
    """R̂ = Σ bᵢxᵢ − ½aᵢxᵢ²: the gradient of each coordinate is a line."""

    known: ClassVar[bool] = True
    everywhere: ClassVar[bool] = True
    has_error: ClassVar[bool] = True
    independent: ClassVar[bool] = True
    renewable: ClassVar[bool] = False
    at_finest: ClassVar[bool] = False
    warnings: ClassVar[tuple[()]] = ()

    slope: np.ndarray
    curvature: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    held_out_error: float
    count: float

    @property
    def dim(self) -> int:
        return len(self.slope)

    @property
    def quadratic_error(self) -> float:
        return self.held_out_error

    @property
    def settings(self) -> dict[str, float | str]:
        return {"bowl": "round"}

    def value(self, points: np.ndarray) -> np.ndarray:
        return (points * (self.slope - 0.5 * self.curvature * points)).sum(axis=1)

    def gradient(self, points: np.ndarray) -> np.ndarray:
        return self.slope - self.curvature * points

    def error(self, points: np.ndarray) -> np.ndarray:
        return np.sqrt(self.held_out_error / self.count * (((points - self.mean) / self.spread) ** 2).sum(axis=1))

    def explored(self, points: np.ndarray) -> np.ndarray:
        return (np.abs(points - self.mean) < 4 * self.spread).all(axis=1)

    def covariance(self, points: np.ndarray) -> np.ndarray:
        return np.outer(self.error(points), self.error(points))

    def judged(self, points: np.ndarray, gradients: np.ndarray, agents: Any, seed: int) -> "Bowl":
        return self

    def resembles(self, other: Any) -> bool:
        return False

    def maximum(self, samples: np.ndarray, interval: tuple[float, float] | None = None) -> np.ndarray:
        return climbed(self.value, samples, interval)

    def sample(
        self,
        *,
        chains: int,
        beta: float,
        seed: int,
        enough: Callable[[np.ndarray], bool] = lambda samples: True,
        coordinates: Any = None,
        measure: str = "coordinates",
        draws: int | None = None,
    ) -> Drawn:
        normal = np.random.default_rng(seed).standard_normal((chains, draws or 500, self.dim))
        return Drawn(self.slope / self.curvature + normal / np.sqrt(beta * self.curvature), 0.0)


@dataclass
class BowlSums:
    """Σ of 1, x, x², g, xg and g² of each coordinate."""

    moments: np.ndarray
    outside: float = field(default=0.0)

    @property
    def count(self) -> float:
        return float(self.moments[0, 0])

    def add(self, points, gradients, held, weights=None) -> None:
        weights = np.ones(len(points)) if weights is None else weights
        rows = [np.ones_like(points), points, points**2, gradients, points * gradients, gradients**2]
        self.moments = self.moments + np.einsum("n,knd->kd", weights, np.stack(rows))

    def joined(self, other: "BowlSums") -> "BowlSums":
        return BowlSums(self.moments + other.moments)

    def forget(self, share: float) -> None:
        self.moments = (1 - share) * self.moments

    def fit(self, like: Any = None) -> Bowl:
        count, (x, xx, g, xg, gg) = self.moments[0], self.moments[1:] / self.moments[0]
        variance, covariance = xx - x**2, xg - x * g
        curvature = -covariance / variance
        missed = variance * (gg - g**2 - covariance**2 / variance)
        return Bowl(g + curvature * x, curvature, x, np.sqrt(variance), float(missed.sum()), float(count[0]))


BOWL = FitKind(
    basis="a bowl",
    serves=lambda dim: dim == 2,
    begin=lambda points, gradients, held, seed=0, interval=None, agents=None: BowlSums(np.zeros((6, points.shape[1]))),
    sums=BowlSums,
    potential=Bowl,
    streams=True,
    kept=2000,
    after_jump=200,
    judge=None,
    outdated=None,
    limited=False,
)


def bowl_rows(count, seed=0):
    """R = x₁ − ½|x|², seen with noise."""
    random = np.random.default_rng(seed)
    points = random.standard_normal((count, 2))
    return points, [1.0, 0.0] - points + 0.3 * random.standard_normal((count, 2))


PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, -1.0]])
REWARD = np.array([0.0, 0.5, -0.125])


def test_a_new_fit_serves_every_caller(monkeypatch, tmp_path):
    """Through reconstruct, save and load, the report, an Observer and its file, and the page's pictures."""
    monkeypatch.setattr(fits, "FITS", (BOWL, *fits.FITS))
    points, gradients = bowl_rows(4000)
    result = onlooker.reconstruct(points, gradients, chains=8)
    assert result.diagnostics["bowl"] == "round"
    assert result.reward(PLACES) - result.reward(PLACES[:1]) == pytest.approx(REWARD, abs=0.05)
    assert result.maximum() == pytest.approx([1.0, 0.0], abs=0.05)
    assert np.isnan(result.reward([[9.0, 0.0]])).all()
    again = onlooker.load(result.save(tmp_path / "result"))
    assert again.reward(PLACES).tolist() == result.reward(PLACES).tolist()
    assert again.reward_error(PLACES).tolist() == result.reward_error(PLACES).tolist()
    assert write_report(tmp_path / "result").read_text().count("<img") == 3
    # Other dimensions keep their own fits.
    assert fits.kind_for(3).basis == "cosines on a quadratic"

    live = onlooker.Observer(dim=2, chains=8, forgetting=1e-3)
    # What was true before is forgotten by a half every 693 rows.
    live.learn_many(points, -gradients)
    live.learn_many(*bowl_rows(10_050, seed=1))
    assert live.reward(PLACES) - live.reward(PLACES[:1]) == pytest.approx(REWARD, abs=0.05)
    loaded = onlooker.Observer.load(live.save(tmp_path / "live"))
    assert loaded.reward(PLACES).tolist() == live.reward(PLACES).tolist()
    for observer in (live, loaded):
        observer.learn_many(*bowl_rows(150, seed=2))
    assert loaded.reward(PLACES).tolist() == live.reward(PLACES).tolist()

    watched = live.reconstruction()
    box, summit = view_box(live.recent(500), None), watched.summit()
    map_, curve = map_of(watched, (0, 1), box, summit), curve_along(watched, 0, box, summit)
    row, column = np.unravel_index(np.nanargmax(map_.values), map_.values.shape)
    assert (map_.horizontal[column], map_.vertical[row]) == pytest.approx((1.0, 0.0), abs=0.1)
    assert curve.along[np.nanargmax(curve.values)] == pytest.approx(1.0, abs=0.1)
    assert (curve.errors > 0).all()


def test_warnings_of_a_fit_are_the_result_s(monkeypatch):
    monkeypatch.setattr(fits, "FITS", (BOWL, *fits.FITS))
    monkeypatch.setattr(Bowl, "warnings", (Message("misfit-untested", "nothing tests the bowl."),))
    with pytest.warns(onlooker.OnlookerWarning, match="nothing tests the bowl"):
        result = onlooker.reconstruct(*bowl_rows(2000), chains=8)
    assert "misfit-untested" in codes(result)


def case_of(kind, dim=2):
    points, gradients = bowl_rows(3000)
    if dim > 2:
        random = np.random.default_rng(3)
        more = random.standard_normal((3000, dim - 2))
        points = np.concatenate([points, more], axis=1)
        gradients = np.concatenate([gradients, -more + 0.3 * random.standard_normal(more.shape)], axis=1)
    return FitCase(kind, points, gradients, np.arange(3000) // 100 % 5 == 0)


@pytest.mark.parametrize("dim", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_every_fit_passes_the_suite(dim):
    assert len(check_fit(case_of(fits.kind_for(dim), dim))) == len(FIT_CHECKS)


def test_a_new_fit_passes_the_suite_and_mistakes_are_found():
    assert len(check_fit(case_of(BOWL))) == len(FIT_CHECKS)

    def broken(**changes):
        kind = type("Broken", (Bowl,), changes)
        sums = type("Sums", (BowlSums,), {"fit": lambda self, like=None: kind(**vars(BowlSums.fit(self)))})
        begin = lambda points, gradients, held, seed, interval: sums(np.zeros((6, points.shape[1])))  # noqa: E731
        return case_of(replace(BOWL, begin=begin, sums=sums, potential=kind))

    for changes, problem in (
        ({"gradient": lambda self, points: -Bowl.gradient(self, points)}, "is not the slope of its value"),
        ({"explored": lambda self, points: np.ones(len(points), bool)}, "a thousand deviations away is explored"),
        ({"error": lambda self, points: Bowl.error(self, points)[:, None]}, "its error is not one number per point"),
        (
            {"value": lambda self, points: Bowl.value(self, points) / self.spread[0]},
            "not the slope|depends on the units",
        ),
    ):
        with pytest.raises(BrokenError, match=problem):
            check_fit(broken(**changes))


def test_cosine_sums_of_another_sample_are_not_joined():
    case = case_of(fits.kind_for(2))
    rows = slice(0, 500)
    other = begin_cosine_potential(case.points[rows], case.gradients[rows], case.held[rows])
    with pytest.raises(ValueError, match="begun on another sample"):
        case.begun().joined(other)


def test_kept_rows_are_joined_and_faded():
    points, gradients = bowl_rows(3000)
    first, second, both = (KeptRows(lambda *rows: rows) for _ in range(3))
    early, late, held = slice(0, 1800), slice(1800, 3000), np.zeros(3000, bool)
    for sums, parts in ((first, [early]), (second, [late]), (both, [early, late])):
        for number, rows in enumerate(parts):
            if number:
                sums.forget(0.5)
            sums.add(points[rows], gradients[rows], held[rows])
    first.forget(0.5)
    joined = first.joined(second)
    assert joined.count == both.count
    assert all(np.array_equal(*pair) for pair in zip(joined.fit(), both.fit(), strict=True))


def test_kept_rows_are_dropped_when_they_weigh_nothing_and_are_not_the_last():
    points, gradients = bowl_rows(3000)
    rows = KeptRows(lambda points, gradients, held: points)
    for first in range(0, 3000, 500):
        rows.forget(0.9)
        rows.add(points[first : first + 500], gradients[first : first + 500], np.zeros(500, bool))
    # (1 − 0.9)³ is above 8e-4, and a fourth power below it.
    assert np.array_equal(rows.fit(), points[-2000:])
    rows.forget(1.0)
    assert np.array_equal(rows.fit(), points[-1000:])
