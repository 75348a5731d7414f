"""The page and the report in a real Chromium: what they show, how their controls work, and how they report problems."""

import zipfile

import numpy as np
import pytest

import onlooker
from onlooker.reconstruction.report import write_report
from tests.support.browser import chromium, until, watching

pytestmark = pytest.mark.browser

# Scripts that read what a figure shows from the browser's copy of the document.
THERE = "name => Bokeh.documents[0].get_model_by_name(name) != null"
SUM = """name => {
  const figure = Bokeh.documents[0].get_model_by_name(name)
  if (figure == null) return null
  const renderer = figure.renderers.find(one => one.glyph.type == 'Image')
  const image = renderer.data_source.data.image[0]
  let total = 0, seen = 0
  for (const value of image) if (isFinite(value)) { total += value; seen += 1 }
  return seen ? total / seen : null
}"""
JUMPS = "() => Array.from(Bokeh.documents[0].get_model_by_name('jumps').data.x)"
# Number of points of the curve.
PLACES = """() => {
  const figure = Bokeh.documents[0].get_model_by_name('curve')
  return figure == null ? 0 : figure.renderers.find(one => one.glyph.type == 'Line').data_source.data.y.length
}"""
WRONG = ("error", "warning")
AXIS = "name => Bokeh.documents[0].get_model_by_name(name).below[0].axis_label"


class Learners:
    """Learners that climb R = −|θ − peak|² and write rows to a log."""

    def __init__(self, folder, dim):
        self.random, self.dim, self.peak, self.rows = np.random.default_rng(0), dim, 0.0, 0
        self.writer = onlooker.LogWriter(folder)

    def climb(self, rows):
        """Write this number of rows."""
        points = self.random.standard_normal((rows, self.dim))
        gradients = -2 * (points - self.peak) + self.random.standard_normal(points.shape)
        self.writer.add_many(points, gradients, agents=self.random.integers(0, 50, rows))
        self.writer.flush()
        self.rows += rows


class Tab:
    """A tab that shows the page, with its errors, its requests to other hosts, and the sizes of what it received."""

    def __init__(self, browser, address):
        self.page = browser.new_context(viewport={"width": 1340, "height": 1000}).new_page()
        self.errors, self.elsewhere, self.received = [], [], []
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type in WRONG else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda sent: None if sent.url.startswith(address) else self.elsewhere.append(sent.url))
        self.page.on("websocket", self._listen)
        assert self.page.goto(address).ok
        self.page.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].roots().length")

    def _listen(self, socket):
        socket.on("framereceived", lambda frame: self.received.append(len(frame)))

    def has(self, words):
        self.page.get_by_text(words).first.wait_for(timeout=120_000)

    def seen(self):
        """The number of observations, from the first tile."""
        tile = self.page.locator(".tile b").first.text_content()
        return int(tile.replace(",", ""))

    def number(self, script, *given):
        return self.page.evaluate(script, *given)

    def bytes_a_second(self):
        """Number of bytes per second that the page receives, over four seconds."""
        first = len(self.received)
        self.page.wait_for_timeout(4000)
        return sum(self.received[first:]) / 4

    def drawn(self, name="map"):
        """Mean of the values of a map, as soon as it is drawn."""
        return until(lambda: self.page.evaluate(SUM, name))


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def two_dimensions(browser, tmp_path):
    """Learners in two dimensions, a tab with their page, the terminal of `onlooker watch`, and the address."""
    learners = Learners(tmp_path / "runs", dim=2)
    learners.climb(4000)
    with watching(tmp_path / "runs") as (address, terminal):
        tab = Tab(browser, address)
        tab.has("live")
        yield learners, tab, terminal, address
        tab.page.close()


def test_the_page_shows_what_arrives_and_marks_a_jump(two_dimensions):
    learners, tab, _, _ = two_dimensions
    assert tab.page.title() == "Onlooker"
    before = tab.drawn()
    learners.climb(20_000)
    until(lambda: tab.seen() == learners.rows)
    until(lambda: tab.drawn() != before)
    assert tab.number(JUMPS) == []

    at, learners.peak = learners.rows, 1.0
    learners.climb(20_000)
    (marked,) = until(lambda: tab.number(JUMPS))
    assert abs(marked - at) < 300
    tab.has("the reward jumped at observation")
    # R̂ is the new reward: its summit is at (1, 1).
    summit = "() => { const one = Bokeh.documents[0].get_model_by_name('summit').data; return [one.x[0], one.y[0]] }"
    until(lambda: np.abs(np.subtract(tab.number(summit), 1.0)).max() < 0.15)
    assert (tab.errors, tab.elsewhere) == ([], [])


def test_controls_pause_the_page_and_change_its_figures(two_dimensions):
    learners, tab, _, _ = two_dimensions
    before = tab.drawn()
    tab.page.get_by_role("button", name="Pause").click()
    tab.has("paused")
    learners.climb(10_000)
    tab.has("10,000 more have arrived since")
    assert tab.drawn() == before
    # Menus work while the page is paused.
    tab.page.get_by_label("map shows").select_option("standard error of R̂")
    until(lambda: tab.drawn() > 0)
    tab.page.get_by_label("map shows").select_option("reward R̂")
    until(lambda: tab.drawn() == before)
    tab.page.get_by_role("button", name="Resume").click()
    until(lambda: tab.seen() == learners.rows)
    until(lambda: tab.drawn() != before)

    assert tab.number(AXIS, "map") == "θ(1)"
    tab.page.get_by_label("horizontal axis").select_option("θ(2)")
    until(lambda: tab.number(AXIS, "map") == "θ(2)")
    # The two axes were swapped.
    assert tab.page.get_by_label("vertical axis").input_value() == "θ(1)"
    until(lambda: tab.number(AXIS, "curve") == "θ(2)")
    tab.page.get_by_label("map shows").select_option("standard error of R̂")
    until(lambda: tab.drawn() > 0)
    assert tab.errors == []


def test_the_estimate_and_the_picture_can_be_downloaded(two_dimensions, tmp_path):
    _, tab, _, _ = two_dimensions
    tab.drawn()
    with tab.page.expect_download() as waited:
        tab.page.get_by_text("estimate (.zip)").click()
    with zipfile.ZipFile(waited.value.path()) as archive:
        archive.extractall(tmp_path / "downloaded")
    found = onlooker.load(tmp_path / "downloaded" / "estimate" / "result.zarr")
    assert np.abs(found.maximum()).max() < 0.2
    with tab.page.expect_download() as waited:
        tab.page.get_by_text("picture (.png)").click()
    assert waited.value.path().read_bytes().startswith(b"\x89PNG")


def test_the_page_reports_a_missing_log_until_it_is_back(two_dimensions, tmp_path):
    learners, tab, terminal, _ = two_dimensions
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    tab.has("was moved or deleted")
    terminal.wait_for("was moved or deleted")
    assert np.isfinite(tab.drawn())
    (tmp_path / "elsewhere").rename(tmp_path / "runs")
    learners.climb(5000)
    until(lambda: tab.seen() == learners.rows)
    assert tab.page.get_by_text("was moved or deleted").count() == 0
    assert tab.errors == []


def test_two_browsers_have_their_own_choices_and_one_may_be_closed(two_dimensions, browser):
    learners, tab, terminal, address = two_dimensions
    other = Tab(browser, address)
    other.drawn()
    other.page.get_by_label("horizontal axis").select_option("θ(2)")
    until(lambda: other.number(AXIS, "map") == "θ(2)")
    tab.page.get_by_role("button", name="Pause").click()
    learners.climb(5000)
    until(lambda: other.seen() == learners.rows)
    # Each tab has its own choices.
    assert tab.number(AXIS, "map") == "θ(1)"
    assert tab.seen() < learners.rows
    terminal.wait_for("2 open")
    other.page.close()
    terminal.wait_for(r"page closed \(1 open\); watching continues")
    tab.page.get_by_role("button", name="Resume").click()
    until(lambda: tab.seen() == learners.rows)
    assert tab.errors == other.errors == []


def test_the_page_says_when_the_onlooker_has_stopped(two_dimensions):
    _, tab, terminal, _ = two_dimensions
    tab.drawn()
    assert terminal.interrupt() == 0
    assert "saw 4,000 observations" in terminal.said
    tab.has("Onlooker has stopped")


@pytest.mark.parametrize("dim", [1, 5])
def test_the_page_shows_one_and_many_dimensions(browser, tmp_path, dim):
    (tmp_path / "runs").mkdir()
    with watching(tmp_path / "runs") as (address, _):
        tab = Tab(browser, address)
        # There are no rows yet.
        tab.has("has no rows yet; waiting for the first")
        tab.has("waiting for the first rows")
        learners = Learners(tmp_path / "runs", dim)
        learners.climb(1500)
        until(lambda: tab.number(PLACES) > 20, seconds=120)
        for name, there in (("map", dim > 1), ("marginals", dim > 2), ("timeline", True)):
            assert tab.number(THERE, name) == there
        if dim > 2:
            tab.page.get_by_label("vertical axis").select_option("θ(4)")
            upwards = "() => Bokeh.documents[0].get_model_by_name('map').left[0].axis_label"
            until(lambda: tab.number(upwards) == "θ(4)")
        assert (tab.errors, tab.elsewhere) == ([], [])
        tab.page.close()


def test_the_page_receives_no_more_data_after_a_million_observations(browser, tmp_path):
    random = np.random.default_rng(0)
    points = random.standard_normal((1_050_000, 2))
    np.savez(tmp_path / "log.npz", points=points, gradients=-2 * points + random.standard_normal(points.shape))
    with watching(tmp_path / "log.npz") as (address, _):
        tab = Tab(browser, address)
        tab.has("live")
        early = tab.bytes_a_second()
        until(lambda: tab.seen() > 900_000, seconds=90)
        late = tab.bytes_a_second()
        print(f"{early / 1e3:.0f} kB/s at first, {late / 1e3:.0f} kB/s after 900,000, {max(tab.received)} the largest")
        assert 0 < late < 1.5 * early
        assert max(tab.received) < 500_000
        tab.has("have been read")
        assert tab.seen() == len(points)
        # A page that is opened now receives no more data either.
        new = Tab(browser, address)
        assert np.isfinite(new.drawn())
        assert max(new.received) < 500_000
        assert tab.errors == new.errors == []


def test_a_report_opens_without_a_network(browser, tmp_path):
    random = np.random.default_rng(0)
    points = random.standard_normal((3000, 2))
    result = onlooker.reconstruct(points, -points + random.standard_normal(points.shape))
    result.save(tmp_path / "result")
    page = browser.new_page()
    asked, errors = [], []
    page.on("request", lambda sent: asked.append(sent.url.split(":")[0]))
    page.on("console", lambda line: errors.append(line.text))
    page.goto(write_report(tmp_path / "result").as_uri())
    widths = page.evaluate("Array.from(document.images).map(image => image.naturalWidth)")
    assert len(widths) == 3
    assert min(widths) > 300
    assert set(asked) <= {"file", "data"}
    assert errors == []
    assert page.get_by_text("How to reproduce it").is_visible()
    page.close()
