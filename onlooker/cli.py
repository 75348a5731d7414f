"""The ``onlooker`` command. Bad input leads to one line on standard error and exit code 2, never a traceback."""

import shlex
import sys
import tempfile
import warnings
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from onlooker._version import __version__
from onlooker.core.extras import MissingExtraError, needs_extra
from onlooker.explanation.command import explain_log, function_of, words_of

if TYPE_CHECKING:
    pass

__all__ = ["app", "main"]

# The examples of the paper, each a module of onlooker/paper.
EXAMPLES = ("bayes", "posterior", "logistic", "cmdp", "tracking")
# Largest number of coordinates that are printed.
MOST_SHOWN = 8

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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of all random numbers.")] = 0,
) -> None:
    """Reconstruct a simulated reward and compare it with the truth."""
    from onlooker.paper.demo import demo as show

    _writable(out)
    print(
        f"\nthe picture is in {show(out, seed=seed)}. Next: onlooker watch --demo, learners whose reward jumps, live."
    )


@app.command()
def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="bayes, posterior, logistic, cmdp, tracking or all.")],
    preset: Annotated[
        str | None, typer.Option(help="text, listing or corrected. Default: all; with --quick, the fast ones.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take about a minute; ranges are slightly wider.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of all random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for figures and metrics.json.")] = None,
    with_report: Annotated[bool, typer.Option("--report", help="Also write report.html.")] = False,
) -> None:
    """Reproduce an example of the paper: a table, figures and metrics.json."""
    from onlooker.paper.rows import Row, print_rows, write_metrics

    if name not in (*EXAMPLES, "all"):
        raise ValueError(f"there is no example {name!r}; choose one of {', '.join(EXAMPLES)}, all.")
    asked = EXAMPLES if name == "all" else (name,)
    examples = {example: import_module(f"onlooker.paper.{example}") for example in asked}
    presets = {example: module.PRESETS for example, module in examples.items()}
    chosen = [example for example, known in presets.items() if preset is None or preset in known]
    if not chosen:
        known = sorted({preset for of_example in presets.values() for preset in of_example})
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
                    from onlooker.paper.report import write_example_report

                    print(f"the report is {write_example_report(folder)}")
        outside = outside or not all(row.within for row in rows)
    if outside:
        raise typer.Exit(1)


LogPath = Annotated[
    str,
    typer.Argument(
        metavar="LOG", help="A folder of shards, or a .parquet, .npz or .csv file; or s3://…, gs://…, abfs://…"
    ),
]
LearningRate = Annotated[float | None, typer.Option(help="ε of the learners, for logs without gradients.")]
Rule = Annotated[
    str | None,
    typer.Option("--optimizer", "--optimiser", help="sgd, momentum, nesterov, … for logs without gradients."),
]
Momentum = Annotated[float, typer.Option(help="ρ of momentum or nesterov.")]
WeightDecay = Annotated[float, typer.Option(help="λ of the optimizer's weight decay.")]
Descent = Annotated[
    bool | None,
    typer.Option("--descent/--ascent", help="The gradients are those of a loss, or not; overrides the log."),
]
Objective = Annotated[
    str,
    typer.Option(help="training: what learners climb, with their weight decay; loss: without it."),
]
Components = Annotated[int | None, typer.Option(help="Use only this number of principal components of the points.")]
Workers = Annotated[
    str | None, typer.Option(help="Who reads a large log: a number of processes, or ray. Default: this process.")
]
Sums = Annotated[
    str | None,
    typer.Option(help="Folder for sums over parts of a large log: after an interruption, only the rest is read."),
]


@app.command()
def inspect(
    log: LogPath,
    learning_rate: LearningRate = None,
    optimizer: Rule = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    descent: Descent = None,
    components: Components = None,
    workers: Workers = None,
    checkpoint: Sums = None,
) -> None:
    """Show what a log contains, whether it is usable, and which method suits it."""
    from onlooker.reconstruction.by_passes import small
    from onlooker.reconstruction.command import described, opened_log, rows_of, workers_of
    from onlooker.reconstruction.inspect_log import inspect_large, inspect_log
    from onlooker.workers import engine_for

    asked = workers_of(workers)
    opened = opened_log(log, learning_rate, optimizer, momentum, weight_decay, descent)
    if components is None and not small(opened):
        with engine_for(asked) as engine:
            inspection = inspect_large(opened, engine, checkpoint)
    else:
        inspection = inspect_log(opened, rows_of(opened, components))
    print(f"{log}: {described(opened)}")
    for name, value in inspection.numbers.items():
        print(f"  {name.replace('_', ' '):<18} {_short(value)}")
    print("  where the points are (5 %, 50 %, 95 %):")
    for axis, (low, middle, high) in enumerate(inspection.occupancy.T[:MOST_SHOWN]):
        print(f"    θ({axis + 1:<3}) {low:>11.4g} {middle:>11.4g} {high:>11.4g}")
    if (dim := inspection.occupancy.shape[1]) > MOST_SHOWN:
        print(f"    … and {dim - MOST_SHOWN} more coordinates")
    for warning in inspection.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"usable: {'yes' if inspection.usable else 'no'}")
    print(f"method: {inspection.method}: {inspection.reason}")
    if not inspection.usable:
        raise typer.Exit(1)


@app.command("reconstruct")
def reconstruct_log(
    context: typer.Context,
    log: LogPath,
    method: Annotated[str, typer.Option(help="auto, potential or replay.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder for the result. Default: out/ and the log's name.")] = None,
    beta: Annotated[float, typer.Option(help="β: the samples follow exp(βR).")] = 1.0,
    chains: Annotated[int, typer.Option(min=1, help="Number of chains of samples.")] = 64,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of all random numbers.")] = 0,
    learning_rate: LearningRate = None,
    optimizer: Rule = None,
    momentum: Momentum = 0.0,
    weight_decay: WeightDecay = 0.0,
    descent: Descent = None,
    components: Components = None,
    objective: Objective = "training",
    workers: Workers = None,
    checkpoint: Sums = None,
) -> None:
    """Reconstruct the reward from a log: figures, summary.json, and the result as a Zarr store.

    After Ctrl-C, the same command with --checkpoint reads only the rest of a large log.
    """
    from onlooker.data.trainer import OBJECTIVES
    from onlooker.reconstruction.by_passes import small
    from onlooker.reconstruction.command import opened_log, rows_of, workers_of
    from onlooker.reconstruction.folder import SUMMARY, write_result
    from onlooker.reconstruction.reconstruct import METHODS, reconstruct

    known = [name for name in METHODS if name not in ("passive", "reweighted")]
    if method not in known:
        raise ValueError(
            f"method is {method!r}; choose one of {', '.join(known)}; others need a density, given in Python."
        )
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; choose one of {', '.join(OBJECTIVES)}.")
    folder = Path("out") / (Path(log).name or "log") if out is None else out
    asked = workers_of(workers)
    opened = opened_log(log, learning_rate, optimizer, momentum, weight_decay, descent)
    if components is None and method in ("auto", "potential") and not small(opened):
        _writable(folder)
        print(f"reading observations of {opened.dim} dimensions …", file=sys.stderr, flush=True)
        source: Any = opened
    else:
        source = rows_of(opened, components)
        _writable(folder)
        print(f"read {len(source):,} observations of {source.dim} dimensions; fitting …", file=sys.stderr, flush=True)
        checkpoint = None
    options: dict[str, Any] = {"beta": beta, "chains": chains, "seed": seed, "workers": asked, "checkpoint": checkpoint}
    result = reconstruct(source, method=method, objective=objective, **options)
    summary = write_result(folder, result, log=str(log), command=_command(context), about=opened.about.to_metadata())
    numbers = result.diagnostics
    where = "" if summary["maximum_explored"] else ", where no learner was"
    if result.fitted.known:
        print(f"method {result.method}, R̂ is highest at {_short(summary['maximum'])}{where}")
    else:
        print(f"method {result.method} yields samples only in {result.dim} dimensions")
    errors = (_short(numbers.get(name)) for name in ("held_out_error", "quadratic_error"))
    print("held-out gradient error {}, of a quadratic {}".format(*errors))
    print(f"the result is in {folder}: {SUMMARY}, {', '.join(summary['files'])}")


app.command("explain")(explain_log)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="A folder that reconstruct or reproduce wrote, or a saved result.")],
    out: Annotated[Path | None, typer.Option(help="The file to write. Default: report.html in that folder.")] = None,
) -> None:
    """Write a report about a result: one HTML file that loads nothing from the network."""
    from onlooker.live.explained import is_explanation, write_explanation_report

    if (result / "metrics.json").is_file():
        from onlooker.paper.report import write_example_report

        print(f"the report is {write_example_report(result, out)}")
    elif is_explanation(result):
        print(f"the report is {write_explanation_report(result, out)}")
    else:
        from onlooker.reconstruction.report import write_report

        print(f"the report is {write_report(result, out)}")


@app.command()
def watch(
    context: typer.Context,
    source: Annotated[
        str | None, typer.Argument(help="A folder of shards that may still grow, also in a store, or a log file.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Simulated learners, whose reward jumps.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the page; 0 for any free one.")] = None,
    forgetting: Annotated[
        float | None,
        typer.Option(help="Share of its weight that an observation loses with each later one. Default: adaptive."),
    ] = None,
    descent: Descent = None,
    components: Components = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of all random numbers.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save what was learnt to; if it exists, watching resumes from it.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION, ψ of one point in jax.numpy: shows the weights of features.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="Names of the features, with commas between them.")] = None,
) -> None:
    """Show the reward on a live page, while learners are training."""
    if (source is None) != demo:
        raise ValueError("give either a SOURCE to watch or --demo.")
    if demo and not (descent is components is checkpoint is features is None):
        raise ValueError("--descent, --components and --checkpoint are for a log; leave them out with --demo.")
    psi = None if features is None else function_of(features)
    with needs_extra("page", "the page"):
        from onlooker.live.page.features import FeatureWatch
        from onlooker.live.page.serve import leave, serve
    from onlooker.live.page.source import GrowingLog
    from onlooker.live.page.watch import Watch
    from onlooker.simulation.demonstration import Demonstration
    from onlooker.storage.stores import as_place

    seen = Demonstration(seed=seed) if source is None else GrowingLog(as_place(source), descent, components)
    kept = "adaptive" if forgetting is None else forgetting
    featured = psi is not None
    watched = (
        FeatureWatch(seen, psi, words_of(names), kept, checkpoint) if featured else Watch(seen, kept, seed, checkpoint)
    )
    serve(watched, port, _command(context))
    leave()


def _command(context: typer.Context, **instead: Any) -> str:
    """The command line that repeats this run, with some values replaced."""
    words = ["onlooker", str(context.info_name)]
    for parameter in context.command.params:
        # Typer bundles click or depends on it, so its enumeration cannot be imported: compare the name.
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
    """The pictures in a folder, with the times at which they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix in (".png", ".gif")}


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
    """Run the command line; print errors and warnings as one line each."""
    warnings.showwarning = _show_warning
    for output in (sys.stdout, sys.stderr):
        # A terminal that cannot show θ shows a question mark.
        if isinstance(output, TextIOWrapper):
            output.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        # Typer bundles click or depends on it, so its errors cannot be imported: recognise them by their method.
        if hasattr(error, "format_message"):
            text = error.format_message()
        elif isinstance(error, ValueError | TypeError | OSError | MissingExtraError):
            text = str(error)
        else:
            raise
        print(f"onlooker: {text}", file=sys.stderr)
        code = 2
    if code == 130:
        print("onlooker: interrupted.", file=sys.stderr)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
