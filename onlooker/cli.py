"""The ``onlooker`` command. Bad input is one sentence on standard error and exit code 2, never a traceback."""

import os
import shlex
import sys
import tempfile
import threading
import warnings
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer

from onlooker import Log, Observations, __version__
from onlooker.check import check_whole

__all__ = ["app", "main"]

# Coordinates that are printed, and points that principal components are made from.
MOST_SHOWN = 8
MOST_TRAJECTORY = 20_000

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Watch gradient learners and reconstruct what they maximise.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onlooker {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
) -> None:
    """Learners, an onlooker, the truth: a picture and the distances, in twenty seconds."""
    from onlooker.paper.demo import demo as show

    _writable(out)
    print(f"\nthe picture is in {show(out, seed=seed)}")


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which example: bayes, posterior, logistic, cmdp, tracking or all.")],
    preset: Annotated[
        str | None, typer.Option(help="text, listing or corrected; by default all, quickly those there is time for.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In a minute; ranges may be a little wider.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for figures and metrics.json.")] = None,
    with_report: Annotated[bool, typer.Option("--report", help="And report.html, all of it in one file.")] = False,
) -> None:
    """Run an example of the paper: figures, a table, and metrics.json."""
    from onlooker.live.report import write_report
    from onlooker.paper import bayes, cmdp, logistic, posterior, tracking
    from onlooker.paper.rows import Row, print_rows, write_metrics

    examples = {"bayes": bayes, "posterior": posterior, "logistic": logistic, "cmdp": cmdp, "tracking": tracking}
    if name not in (*examples, "all"):
        raise ValueError(f"there is no example {name!r}; choose one of {', '.join(examples)}, all.")
    presets = {example: module.PRESETS for example, module in examples.items() if name in (example, "all")}
    chosen = [example for example, known in presets.items() if preset is None or preset in known]
    if not chosen:
        known = sorted({one for each in presets.values() for one in each})
        raise ValueError(f"{name} has no preset {preset!r}; choose one of {', '.join(known)}.")
    outside = False
    for example in chosen:
        base = Path("out") if out is None else out
        folder = base / example if name == "all" or out is None else base
        _writable(folder)
        rows: list[Row] = []
        interrupted, before = True, _figures(folder)
        try:
            for row in examples[example].reproduce(preset, quick, seed, folder):
                rows.append(row)
                print(f"{'within ' if row.within else 'OUTSIDE'}  {row.name}", file=sys.stderr, flush=True)
            interrupted = False
        finally:
            if rows:
                print_rows(f"{example}{' (quick)' if quick else ''}, seed {seed}", rows)
                drawn = [figure for figure, when in _figures(folder).items() if before.get(figure) != when]
                about = {"command": _command(context, name=example), "figures": sorted(drawn)}
                print(f"figures and {write_metrics(folder, example, preset, seed, rows, interrupted, **about)}")
                if with_report:
                    print(f"the report is {write_report(folder)}")
        outside = outside or not all(row.within for row in rows)
    if outside:
        raise typer.Exit(1)


LogPath = Annotated[Path, typer.Argument(help="A folder of shards, or a .parquet, .npz or .csv file.")]
LearningRate = Annotated[float | None, typer.Option(help="ε, when gradients are read off iterates.")]
Rule = Annotated[str | None, typer.Option("--optimiser", help="sgd, momentum, nesterov, …, when read off iterates.")]
Momentum = Annotated[float, typer.Option(help="ρ of momentum or nesterov.")]
WeightDecay = Annotated[float, typer.Option(help="λ that the optimiser adds by itself.")]
Descent = Annotated[bool | None, typer.Option("--descent/--ascent", help="A loss's gradients, whatever the log says.")]
Components = Annotated[int | None, typer.Option(help="Watch so many principal components of the points only.")]


@app.command()
def inspect(
    log: LogPath,
    learning_rate: LearningRate = None,
    optimiser: Rule = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    descent: Descent = None,
    components: Components = None,
) -> None:
    """Say what is in a log, whether it is usable, and which method fits and why."""
    from onlooker.inspection import inspect_log

    opened, seen = _read(log, learning_rate, optimiser, momentum, weight_decay, descent, components)
    found = inspect_log(opened, seen)
    print(f"{log}: {_described(opened)}")
    for name, value in found.numbers.items():
        print(f"  {name.replace('_', ' '):<18} {_short(value)}")
    print("  where the points are (5 %, 50 %, 95 %):")
    for axis, (low, middle, high) in enumerate(found.occupancy.T[:MOST_SHOWN]):
        print(f"    θ({axis + 1:<3}) {low:>11.4g} {middle:>11.4g} {high:>11.4g}")
    if seen.dim > MOST_SHOWN:
        print(f"    … and {seen.dim - MOST_SHOWN} more coordinates")
    for doubt in found.doubts:
        print(f"warning: {doubt}", file=sys.stderr)
    print(f"usable: {'yes' if found.usable else 'no'}")
    print(f"method: {found.method}: {found.reason}")
    if not found.usable:
        raise typer.Exit(1)


@app.command("reconstruct")
def reconstruct_log(
    context: typer.Context,
    log: LogPath,
    method: Annotated[str, typer.Option(help="auto, potential or replay.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for the result; by default out/ and the log's name.")] = None,
    beta: Annotated[float, typer.Option(help="Samples are of exp(βR).")] = 1.0,
    chains: Annotated[int, typer.Option(min=1, help="How many chains of samples.")] = 64,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
    learning_rate: LearningRate = None,
    optimiser: Rule = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    descent: Descent = None,
    components: Components = None,
) -> None:
    """Reconstruct the reward behind a log: figures, summary.json, and the result as a Zarr store."""
    from onlooker.reconstruct import METHODS, reconstruct
    from onlooker.summary import SUMMARY, write_result

    known = [one for one in METHODS if one not in ("passive", "reweighted")]
    if method not in known:
        raise ValueError(
            f"method is {method!r}; choose one of {', '.join(known)} (the others need a density: in Python)."
        )
    folder = Path("out") / log.name if out is None else out
    opened, seen = _read(log, learning_rate, optimiser, momentum, weight_decay, descent, components)
    _writable(folder)
    print(f"read {len(seen):,} observations of {seen.dim} dimensions; fitting …", file=sys.stderr, flush=True)
    result = reconstruct(seen, method=method, beta=beta, chains=chains, seed=seed)
    summary = write_result(folder, result, log=str(log), command=_command(context), about=opened.about.to_metadata())
    numbers = result.diagnostics
    where = "" if summary["maximum_explored"] else ", where no learner was"
    print(f"method {result.method}, R̂ is highest at {_short(summary['maximum'])}{where}")
    errors = (_short(numbers.get(name)) for name in ("held_out_error", "quadratic_error"))
    print("held-out gradient error {}, of a quadratic {}".format(*errors))
    for warning in result.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"the result is in {folder}: {SUMMARY}, {', '.join(summary['files'])}")


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="A folder that reconstruct or reproduce wrote, or a saved result.")],
    out: Annotated[Path | None, typer.Option(help="The file; by default report.html in that folder.")] = None,
) -> None:
    """Write all there is to say about a result into one HTML file, which needs no network to be read."""
    from onlooker.live.report import write_report

    print(f"the report is {write_report(result, out)}")


@app.command()
def watch(
    context: typer.Context,
    source: Annotated[
        Path | None, typer.Argument(help="A folder of shards that may still grow, or a log file.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Simulated learners, whose reward jumps.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Of the page; 0 for any that is free.")] = None,
    forgetting: Annotated[
        float | None, typer.Option(help="The share of its weight that an observation loses with each later one.")
    ] = None,
    descent: Descent = None,
    components: Components = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
) -> None:
    """Show the reward on a page of this machine, live, as learners are at work."""
    if (source is None) != demo:
        raise ValueError("give either a SOURCE to watch or --demo.")
    if demo and (descent is not None or components is not None):
        raise ValueError("--descent and --components are for a log; --demo has its own two coordinates.")
    try:
        from onlooker.live.serve import serve
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the page needs {error.name}: pip install 'onlooker[page]' or, in a clone, pip install -e '.[page]'."
        ) from None
    from onlooker.live.source import Demonstration, GrowingLog
    from onlooker.live.watch import Watch

    seen = Demonstration(seed=seed) if source is None else GrowingLog(source, descent, components)
    serve(Watch(seen, "adaptive" if forgetting is None else forgetting, seed), port, _command(context))
    if threading.active_count() > 1:
        # A fit that is under way cannot be told to stop, and must not be there when Python takes everything down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _read(
    path: Path,
    learning_rate: float | None,
    optimiser: str | None,
    momentum: float,
    weight_decay: float,
    descent: bool | None,
    components: int | None,
) -> tuple[Log, Observations]:
    """A log's observations, with what was said on the command line believed before what it says itself."""
    from onlooker.observe.log import open_log
    from onlooker.observe.optimiser import as_optimiser
    from onlooker.observe.projection import principal_components
    from onlooker.progress import progress

    if components is not None:
        check_whole(components=components)
    given = {"momentum": momentum, "weight_decay": weight_decay}
    said: dict[str, Any] = {name: value for name, value in given.items() if value}
    rule = None if optimiser is None else as_optimiser(optimiser, **said)
    opened = open_log(path, learning_rate=learning_rate, optimiser=rule, descent=descent)
    if said and rule is None:
        # Of what the log says, only what was said here is replaced.
        opened = open_log(
            path,
            learning_rate=learning_rate,
            optimiser=replace(opened.about.optimiser or as_optimiser(None), **said),
            descent=descent,
        )
    with progress("reading", opened.row_count() or None, None) as report:
        seen = opened.read(report)
    if components is not None:
        some = seen.points[np.linspace(0, len(seen) - 1, min(len(seen), MOST_TRAJECTORY)).astype(int)]
        projection = principal_components(some, components)
        print(f"{components} components have {projection.explained:.0%} of the points' variance", file=sys.stderr)
        seen = projection(seen)
    return opened, seen


def _command(context: typer.Context, **instead: Any) -> str:
    """The command that is running, to be run again; with something else for some of what was given."""
    words = ["onlooker", str(context.info_name)]
    for parameter in context.command.params:
        # Typer carries a click of its own, or depends on one: its enumeration is known by name only.
        origin = context.get_parameter_source(str(parameter.name))
        if origin is None or origin.name != "COMMANDLINE" or parameter.name in ("out", "port", "with_report"):
            continue
        value = instead.get(str(parameter.name), context.params[str(parameter.name)])
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            words += [parameter.opts[0], str(value)]
    return shlex.join(words)


def _figures(folder: Path) -> dict[str, int]:
    """The pictures in a folder, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix in (".png", ".gif")}


def _described(log: Log) -> str:
    about = log.about
    rule = "an optimiser nobody wrote down" if about.optimiser is None else about.optimiser.name
    if about.optimiser is not None and about.optimiser.momentum:
        rule += f", {'Nesterov ' if about.optimiser.nesterov else ''}momentum {about.optimiser.momentum:g}"
    rate = "unknown" if about.learning_rate is None else f"{about.learning_rate:g}"
    kind = f"gradients ({about.direction})" if log.has_gradients else "iterates without gradients"
    return f"{kind}, {rule}, learning rate {rate}" + (f"; {about.source}" if about.source else "")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        more = f", … {len(value)} in all" if len(value) > MOST_SHOWN else ""
        return ", ".join(map(_short, value[:MOST_SHOWN])) + more
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"--out {folder} cannot be written to ({error.strerror}); give another folder.") from None


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {message}", file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line and turn errors and warnings into sentences."""
    warnings.showwarning = _show_warning
    for output in (sys.stdout, sys.stderr):
        # A terminal that knows no θ shows a question mark.
        if isinstance(output, TextIOWrapper):
            output.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        # Typer's own errors come from the click it carries or depends on: they are known by what they can do.
        if hasattr(error, "format_message"):
            sentence = error.format_message()
        elif isinstance(error, ValueError | TypeError | OSError):
            sentence = str(error)
        else:
            raise
        print(f"onlooker: {sentence}", file=sys.stderr)
        code = 2
    if code == 130:
        print("onlooker: interrupted.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
