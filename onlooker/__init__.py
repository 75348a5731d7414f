"""Watch gradient learners and reconstruct the reward they maximise.

Names are imported when they are first used (PEP 562): `import onlooker` alone loads neither JAX nor NumPy.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from onlooker._version import __version__ as __version__

if TYPE_CHECKING:
    from onlooker import inverse as inverse
    from onlooker import simulation as simulation
    from onlooker.core import density as density
    from onlooker.core import distances as distances
    from onlooker.core import kernels as kernels
    from onlooker.core import policies as policies
    from onlooker.core.messages import Message, OnlookerWarning
    from onlooker.data import projection as projection
    from onlooker.data.along import along
    from onlooker.data.log.reader import open_log, read_log
    from onlooker.data.log.writer import LogWriter
    from onlooker.data.observations import Observations, observe
    from onlooker.data.optimizer import Optimizer
    from onlooker.data.record.by_type import record
    from onlooker.data.stream import oracle, pooled, recorded
    from onlooker.engine.accumulators import Grid, Marginals
    from onlooker.engine.run import Chains, run
    from onlooker.explanation.explain import explain
    from onlooker.explanation.paths import paths
    from onlooker.explanation.result import Explanation
    from onlooker.explanation.tabular import tabular
    from onlooker.fit import memory as memory
    from onlooker.live.observer import Observer
    from onlooker.reconstruction.compare import Comparison, compare
    from onlooker.reconstruction.landscape import landscape
    from onlooker.reconstruction.many import reconstruct_many
    from onlooker.reconstruction.maximum_region import MaximumRegion
    from onlooker.reconstruction.reconstruct import reconstruct
    from onlooker.reconstruction.result import Reconstruction
    from onlooker.reconstruction.store import load

__all__ = [
    "Chains",
    "Comparison",
    "Explanation",
    "Grid",
    "LogWriter",
    "Marginals",
    "MaximumRegion",
    "Message",
    "Observations",
    "Observer",
    "OnlookerWarning",
    "Optimizer",
    "Reconstruction",
    "along",
    "compare",
    "explain",
    "landscape",
    "load",
    "observe",
    "open_log",
    "oracle",
    "paths",
    "pooled",
    "read_log",
    "reconstruct",
    "reconstruct_many",
    "record",
    "recorded",
    "run",
    "tabular",
]

# The module that each public name lives in.
_HOME = {
    "Chains": "engine.run",
    "Comparison": "reconstruction.compare",
    "compare": "reconstruction.compare",
    "MaximumRegion": "reconstruction.maximum_region",
    "Explanation": "explanation.result",
    "Grid": "engine.accumulators",
    "LogWriter": "data.log.writer",
    "Marginals": "engine.accumulators",
    "Observations": "data.observations",
    "Observer": "live.observer",
    "Message": "core.messages",
    "OnlookerWarning": "core.messages",
    "Optimizer": "data.optimizer",
    "Reconstruction": "reconstruction.result",
    "along": "data.along",
    "explain": "explanation.explain",
    "landscape": "reconstruction.landscape",
    "load": "reconstruction.store",
    "observe": "data.observations",
    "open_log": "data.log.reader",
    "oracle": "data.stream",
    "paths": "explanation.paths",
    "pooled": "data.stream",
    "read_log": "data.log.reader",
    "reconstruct": "reconstruction.reconstruct",
    "reconstruct_many": "reconstruction.many",
    "record": "data.record.by_type",
    "recorded": "data.stream",
    "run": "engine.run",
    "tabular": "explanation.tabular",
}
# Modules that also have a short name: `onlooker.policies` is `onlooker.core.policies`.
_NAMESPACES = {
    "density": "core.density",
    "distances": "core.distances",
    "kernels": "core.kernels",
    "memory": "fit.memory",
    "policies": "core.policies",
    "projection": "data.projection",
}
_ROOMS = ("callbacks", "inverse", "simulation", "testing")
# Names of version 0.1 and where they are now; they go away in the next release.
_MOVED = {
    **dict.fromkeys(("Density", "standard_normal"), "density"),
    **dict.fromkeys(("total_variation", "wasserstein"), "distances"),
    **dict.fromkeys(("binned", "reservoir", "ring"), "memory"),
    **dict.fromkeys(("Coordinates", "softmax", "spherical"), "policies"),
    **dict.fromkeys(("FieldInfo", "Info", "InverseLearner", "PoolInfo", "active", "ball", "classical"), "inverse"),
    **dict.fromkeys(("corrected", "multikernel", "nonreversible", "on_policies", "passive"), "inverse"),
    **dict.fromkeys(("replay", "reweighted"), "inverse"),
    "Histogram": "core.histogram",
    "naive": "paper.naive",
    "Log": "data.log.reader",
    "Observation": "data.observations",
    "Stream": "data.stream",
}
_RENAMED = {"Optimiser": "Optimizer", "RewardEstimate": "fit.grid_reward.GridReward"}
# Modules of version 0.1 that its pages import from.
_OLD_MODULES = {
    "check": "core.settings",
    "checks": "testing",
    "coordinates": "core.policies",
    "jump_watch": "fit.jumps.watch",
    "learners.agents": "simulation.agents",
    "learners.cmdp": "simulation.cmdp",
    "learners.mixture": "simulation.mixture",
    "learners.policy_gradient": "simulation.policy_gradient",
    "learners.reward": "simulation.reward",
    "learners.switching": "simulation.switching",
    "live.report": "reconstruction.report",
    "observer": "live.observer",
    "observe.log": "data.log.reader",
    "observe.observation": "data.observations",
    "observe.projection": "data.projection",
    "observe.record.optax": "data.record.optax",
    "observe.record.sb3": "data.record.sb3",
    "observe.record.torch": "data.record.torch",
    "observe.stream": "data.stream",
    "reward.accumulate": "engine.accumulators",
    "reward.distances": "core.distances",
    "reward.estimate": "fit.grid_reward",
    "reward.over_time": "engine.over_time",
    "warning": "core.messages",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"onlooker.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"onlooker.{name}")
    elif name in _MOVED or name in _RENAMED:
        return _old(name)
    else:
        raise AttributeError(f"module 'onlooker' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NAMESPACES, *_ROOMS})


def _warn(old: str, new: str, stacklevel: int) -> None:
    import warnings

    sentence = f"onlooker.{old} is now onlooker.{new}; the old name goes away in the next release."
    warnings.warn(sentence, DeprecationWarning, stacklevel=stacklevel)


def _old(name: str) -> Any:
    new = f"{_MOVED[name]}.{name}" if name in _MOVED else _RENAMED[name]
    _warn(name, new, stacklevel=4)
    home, _, last = new.rpartition(".")
    return getattr(import_module(f"onlooker.{home}") if home else sys.modules[__name__], last)


def _namespace(name: str, home: str) -> ModuleType:
    """A module that can be imported under another name, and loads its home when something in it is first used."""
    module = ModuleType(f"onlooker.{name}", f"Another name of `onlooker.{home}`.")

    def find(attribute: str) -> Any:
        # Whoever walks over all modules asks each for its file: that loads nothing.
        if attribute.startswith("__") and attribute != "__all__":
            raise AttributeError(f"module 'onlooker.{name}' has no attribute {attribute!r}")
        if name in _OLD_MODULES:
            _warn(name, home, stacklevel=3)
        return getattr(import_module(f"onlooker.{home}"), attribute)

    vars(module)["__getattr__"] = find
    vars(module)["__dir__"] = lambda: dir(import_module(f"onlooker.{home}"))
    return module


for _name, _home in _NAMESPACES.items():
    globals()[_name] = sys.modules[f"onlooker.{_name}"] = _namespace(_name, _home)
for _name, _home in _OLD_MODULES.items():
    sys.modules[f"onlooker.{_name}"] = _namespace(_name, _home)
del _name, _home
