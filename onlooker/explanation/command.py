"""The command ``onlooker explain``: weights of features from a log, as a table, a picture and files."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["RESULT", "SUMMARY", "explain_log", "function_of", "words_of"]

RESULT, PICTURE, SUMMARY = "explanation", "weights.png", "summary.json"


def explain_log(
    log: Annotated[Path, typer.Argument(help="A folder of shards or of sums, or a .parquet, .npz or .csv file.")],
    features: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION, ψ of one point in jax.numpy. A log of sums needs none.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="Names of the features, with commas between them.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the result. Default: out/ and the log's name.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="ε of the learners, for logs without gradients.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, momentum, … for logs without gradients.")] = None,
    descent: Annotated[bool, typer.Option("--descent", help="The gradients are those of a loss.")] = False,
) -> None:
    """Explain what agents climb by features: the weights of each, with errors, and what cannot be known."""
    from onlooker.explanation.explain import explain
    from onlooker.explanation.record import sums_in
    from onlooker.storage.atomic import replace_file

    if not log.exists():
        raise FileNotFoundError(f"{log} does not exist; give a folder of shards or of sums, or a log file.")
    if features is None and not sums_in(log):
        raise ValueError("--features is not given; name a function of one point, such as my_module:psi.")
    psi = None if features is None else function_of(features)
    why = explain(
        log, features=psi, names=words_of(names), learning_rate=learning_rate, optimizer=optimizer, descent=descent
    )
    folder = Path("out") / log.name if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    why.save(folder / RESULT)
    why.plot().savefig(folder / PICTURE, dpi=110)
    known, error = why.part_known
    summary: dict[str, Any] = {
        "log": str(log),
        "features": features,
        "rows": why.rows,
        "weights": dict(zip(why.names, known.tolist(), strict=True)),
        "errors": dict(zip(why.names, error.tolist(), strict=True)),
        "suspects": {name: estimate._asdict() for name, estimate in why.suspects.items()},
        "unidentified": why.unidentified,
        "explained": why.explained,
        "misfit": why.misfit,
        "reliability": why.reliability,
        "trusted": why.trusted,
        "warnings": [str(message) for message in why.warnings],
        "codes": [message.code for message in why.warnings],
        "files": [RESULT, PICTURE],
    }
    replace_file(folder / SUMMARY, (json.dumps(summary, indent=2, default=float) + "\n").encode())
    print(repr(why).partition("\n  warning:")[0])
    print(f"the result is in {folder}: {SUMMARY}, {RESULT}, {PICTURE}")


def words_of(names: str | None) -> list[str] | None:
    """The names in a text with commas between them."""
    return None if names is None else [name.strip() for name in names.split(",")]


def function_of(text: str) -> Callable[[Any], Any]:
    """The function that ``module:function`` names, also of a module in the current directory."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise ValueError(f"--features is {text!r}; give MODULE:FUNCTION, such as my_module:psi.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = import_module(module)
    except ImportError as error:
        raise ValueError(f"--features names {module}, which cannot be imported ({error}); run where it is.") from None
    if not hasattr(found, name):
        raise ValueError(f"--features names {name}, which {module} does not have.")
    return getattr(found, name)
