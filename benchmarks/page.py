"""The live page in a real Chromium that shares two cores with it: observations, pictures and bytes per second.

    python -m benchmarks.page [--seconds 20] [--pictures docs/figures]

The browser counts how often R̂ and the learners' points were redrawn, and the bytes received over the socket. With
--pictures, screenshots of these pages are saved, and of one in five dimensions.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

import numpy as np

import onlooker
from benchmarks.figures import keep
from tests.support.browser import chromium, watching

COUNT = """() => {
  const document = Bokeh.documents[0], counts = {rewards: 0, points: 0}
  const [map, curve] = ['map', 'curve'].map(name => document.get_model_by_name(name))
  const drawn = map != null ? map.renderers.find(one => one.glyph.type == 'Image')
                            : curve.renderers.find(one => one.glyph.type == 'Line')
  drawn.data_source.properties.data.change.connect(() => { counts.rewards += 1 })
  document.get_model_by_name('points').properties.data.change.connect(() => { counts.points += 1 })
  window.counts = counts
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--pictures", type=Path, help="folder for screenshots")
    given = parser.parse_args()
    print(f"{'source':<34} {'observations/s':>15} {'R̂/s':>8} {'updates/s':>10} {'kB/s':>6}")
    pictures = None if given.pictures is None else given.pictures.resolve()
    with chromium() as browser, tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        measure(browser, "--demo, 20 000 a second", "--demo", given.seconds, pictures and pictures / "page.png")
        write_log("runs-2d", rows=2_000_000, dim=2)
        measure(browser, "a log of two million, 2-D", "runs-2d", given.seconds, None)
        write_log("runs-1d", rows=2_000_000, dim=1)
        measure(browser, "a log of two million, 1-D", "runs-1d", given.seconds, pictures and pictures / "page-1d.png")
        if pictures is not None:
            write_log("runs-5d", rows=60_000, dim=5)
            measure(browser, "a log of 60 000, 5-D (all read)", "runs-5d", 40.0, pictures / "page-5d.png")


def write_log(folder: str, rows: int, dim: int) -> None:
    """R = −|θ|² + Σ sin 3θ / 3 until the middle, then −|θ − 1|² + …."""
    random = np.random.default_rng(0)
    with onlooker.LogWriter(folder) as writer:
        for first in range(0, rows, 50_000):
            count = min(50_000, rows - first)
            points = random.standard_normal((count, dim))
            peak = 0.0 if first < rows // 2 else 1.0
            noise = 2 * random.standard_normal(points.shape)
            writer.add_many(
                points, -2 * (points - peak) + np.cos(3 * points) + noise, agents=random.integers(0, 50, count)
            )


def measure(browser, name: str, source: str, seconds: float, picture: Path | None) -> None:
    with watching(source) as (address, _):
        page = browser.new_context(viewport={"width": 1340, "height": 1010}).new_page()
        received: list[int] = []
        page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
        page.goto(address)
        page.get_by_text("Pause").wait_for(timeout=90_000)
        first, before = seen(page), len(received)
        page.evaluate(COUNT)
        page.wait_for_timeout(1000 * seconds)
        counts = page.evaluate("() => window.counts")
        total = (seen(page) - first, counts["rewards"], counts["points"], sum(received[before:]) / 1e3)
        rates = [number / seconds for number in total]
        keep("page", source=name, observations=rates[0], rewards=rates[1], updates=rates[2], kilobytes=rates[3])
        print("{:<34} {:>15,.0f} {:>8.1f} {:>10.1f} {:>6.0f}".format(name, *rates), flush=True)
        if picture is not None:
            page.screenshot(path=picture, full_page=True)
        page.close()


def seen(page) -> int:
    """The number on the page's first tile."""
    return int(page.locator(".tile b").first.text_content().replace(",", ""))


if __name__ == "__main__":
    main()
