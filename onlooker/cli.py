"""The ``onlooker`` command. Bad input is one sentence on standard error and exit code 2, never a traceback."""

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated

import typer

from onlooker import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
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
    name: Annotated[str, typer.Argument(help="Which example: bayes, posterior, logistic, cmdp, tracking or all.")],
    preset: Annotated[
        str | None, typer.Option(help="text, listing or corrected; by default all, quickly those there is time for.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="In a minute; ranges may be a little wider.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything random.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for figures and metrics.json.")] = None,
) -> None:
    """Run an example of the paper: figures, a table, and metrics.json."""
    from onlooker.paper import bayes, cmdp, logistic, posterior, tracking
    from onlooker.paper.report import Row, print_rows, write_metrics

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
        interrupted = True
        try:
            for row in examples[example].reproduce(preset, quick, seed, folder):
                rows.append(row)
                print(f"{'within ' if row.within else 'OUTSIDE'}  {row.name}", file=sys.stderr, flush=True)
            interrupted = False
        finally:
            if rows:
                print_rows(f"{example}{' (quick)' if quick else ''}, seed {seed}", rows)
                print(f"figures and {write_metrics(folder, example, preset, seed, rows, interrupted)}")
        outside = outside or not all(row.within for row in rows)
    if outside:
        raise typer.Exit(1)


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"--out {folder} cannot be written to ({error.strerror}); give another folder.") from None


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line and turn errors and warnings into sentences."""
    warnings.showwarning = _show_warning
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
