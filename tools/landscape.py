"""The figure of docs/landscapes.md: R̂ on planes of a network beside the true slice, and R along its run.

python -m tools.landscape docs/figures      # needs torch and scikit-learn; half a minute
"""

import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import onlooker
from benchmarks.landscapes import BATCH, Digits
from onlooker.reconstruction.landscape_plot import panel
from onlooker.reconstruction.plots import COLOURS, TRUTH, empty_figure, label_axes, save

SEED = 50


def main(folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    digits = Digits()
    with tempfile.TemporaryDirectory() as log:
        model = digits.run(log, SEED, 1500, 0.1)
        seen = onlooker.read_log(log)
    torch.manual_seed(SEED)
    batches = list(torch.randperm(len(digits.inputs)).split(BATCH))
    planes = {
        "one run": onlooker.landscape(seen),
        "a filter plane": onlooker.landscape(model, digits.loss, batches, seed=SEED),
    }
    figure = empty_figure(13, 7.2)
    rows = figure.subplots(2, 4)
    for line, (name, plane) in zip(rows, planes.items(), strict=True):
        axes, grid = plane.grid(25)
        known = plane.explored(grid)
        truth = np.full(len(grid), np.nan)
        truth[known] = digits.rewards(plane.to_parameters(grid[known]))
        truth -= np.nanmean(truth)
        found = plane.reward(grid) - np.nanmean(plane.reward(grid))
        panel(line[0], axes, found, f"R̂: {name}")
        panel(line[1], axes, truth, "the true slice")
        panel(line[2], axes, np.where(known, plane.reward_error(grid), np.nan), "R̂'s standard error")
        if len(np.unique(plane.agents)) == 1:
            line[0].plot(*plane.path.T, color="white", linewidth=0.7)
        for one in line[:3]:
            label_axes(one, *(axis.split(" (")[0] for axis in plane.names))
    run = onlooker.along(replace(seen, marks={name: mark for name, mark in seen.marks.items() if name != "loss"}))
    every = np.arange(0, len(seen), 25)
    true = digits.rewards(seen.points[every])
    top, bottom = rows[:, 3]
    top.plot(every, true - true[0], color=TRUTH, label="minus the true loss")
    top.plot(run.times, run.reward, color=COLOURS[0], linewidth=1, label="R̂ along the run")
    spread = 2 * run.error
    top.fill_between(run.times, run.reward - spread, run.reward + spread, color=COLOURS[0], alpha=0.2)
    top.set(title="R along the run", xlabel="step")
    top.legend(frameon=False, fontsize=8)
    plane = planes["a filter plane"]
    _, grid = plane.grid(25)
    known = plane.explored(grid)
    truth, found = digits.rewards(plane.to_parameters(grid[known])), plane.reward(grid[known])
    bottom.errorbar(
        truth - truth.mean(),
        found - found.mean(),
        2 * plane.reward_error(grid[known]),
        fmt=".",
        markersize=2,
        linewidth=0.4,
    )
    ends = [truth.min() - truth.mean(), truth.max() - truth.mean()]
    bottom.plot(ends, ends, color=TRUTH, linewidth=1)
    bottom.set(title="the places beside", xlabel="the true slice", ylabel="R̂ ± 2 standard errors")
    print(save(figure, Path(folder) / "landscape.png"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs/figures")
