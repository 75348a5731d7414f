"""Identity of a run: its settings, shapes, seed and start, a digest of its data, and its program.

The program is the printed jaxpr with its constants: it distinguishes two densities, regions or simulated rewards.
Another version of JAX prints the same functions differently, so after an upgrade programs cannot be compared.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from onlooker._version import __version__
from onlooker.data.stream import Stream
from onlooker.engine.loop import Plan, advance, zero_sums
from onlooker.engine.settings import RunSettings
from onlooker.engine.state import RunState
from onlooker.inverse.base import InverseLearner
from onlooker.storage.signature import array_parts, digest_of

__all__ = ["Identity", "plain"]

# Addresses of functions in printed programs differ from process to process.
ADDRESS = re.compile("0x[0-9a-f]+")


class Identity(NamedTuple):
    """What is compared before a run continues from a file.

    Attributes
    ----------
    settings
        Settings of the learner and of the run, shapes, seed, and digests of the start and of the data, by their names.
    program
        Digest of the compiled functions, their constants and the initial state.
    versions
        Versions of Onlooker and JAX, and JAX's back end; programs of different versions cannot be compared.
    """

    settings: Mapping[str, Any]
    program: str
    versions: Mapping[str, str]

    @classmethod
    def of(
        cls,
        plan: Plan,
        learner: InverseLearner,
        stream: Stream,
        settings: RunSettings,
        begun: RunState,
        first: int | None = None,
    ) -> "Identity":
        moments = settings.moments(plan.block)
        described = {
            "learner": learner.name,
            **{f"learner's {name}": value for name, value in learner.settings.items()},
            "steps": settings.steps,
            "snapshots": moments,
            "chains": plan.chains,
            "thin": plan.thin,
            "burn_in": plan.burn_in,
            "draws": plan.trace_every,
            "dtype": str(plan.dtype),
            "grid": settings.grid,
            "marginals": settings.marginals,
            "shapes": (plan.dim, plan.groups, plan.width, plan.block),
            "seed": settings.seed,
            "start": _digest([begun.state.positions]),
            "data": stream.digest,
            **({} if first is None else {"part": (first, plan.groups)}),
        }
        zeros = zero_sums(plan)
        traced = jax.make_jaxpr(partial(advance, plan))(
            stream.data, begun.state, begun.trace, zeros, np.int32(settings.steps)
        )
        printed = ADDRESS.sub("", str(traced.jaxpr))
        program = _digest([*_constants(traced), *jax.tree.leaves(begun)], printed)
        versions = {"onlooker": __version__, "jax": jax.__version__, "backend": jax.default_backend()}
        return cls(_as_json(described), program, versions)

    def text(self) -> str:
        """The identity as a file holds it."""
        return json.dumps({"settings": self.settings, "program": self.program, "versions": self.versions})

    def differences(self, text: str) -> tuple[list[str], bool]:
        """Names of the settings in which a file's run differs, and whether its program could not be compared.

        An unreadable text differs in everything.
        """
        try:
            stored = json.loads(text)
            settings, program, versions = (stored[part] for part in ("settings", "program", "versions"))
            names = settings.keys() | self.settings.keys()
        except (ValueError, TypeError, KeyError, AttributeError):
            return ["everything"], False
        missing = object()
        differing = sorted(name for name in names if settings.get(name, missing) != self.settings.get(name, missing))
        changed = program != self.program
        if changed and versions == self.versions and not differing:
            differing = ["functions"]
        return differing, changed and not differing


def plain(leaf: Any) -> np.ndarray:
    """A leaf of a state as an array; a random key as its numbers."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _digest(leaves: list[Any], *texts: Any) -> str:
    encoded = [f"{text}|".encode() for text in texts]
    return digest_of(chain(encoded, array_parts(map(plain, leaves)))).hexdigest()


def _as_json(described: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON reads them back; numbers to seven digits, since computed ones may differ by rounding."""

    def rounded(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): rounded(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(inner) for inner in value]
        if value is None or isinstance(value, str | bool | int):
            return value
        if isinstance(value, float | np.number):
            return f"{value:.7g}"
        if isinstance(value, np.ndarray | jax.Array):
            return _digest([value])
        return ADDRESS.sub("", repr(value))

    settings: dict[str, Any] = json.loads(json.dumps(rounded(described)))
    return settings


def _constants(program: Any) -> Iterator[Any]:
    """The constants of a jaxpr and of all jaxprs inside it, which its printed form omits."""
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program):
            if _is_program(value):
                yield from _constants(value)


def _is_program(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)
