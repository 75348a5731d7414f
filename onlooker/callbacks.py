"""Callbacks that record a trainer's agent, one per trainer; each is imported when it is first used.

from onlooker.callbacks import SB3Callback

model.learn(10_000, callback=SB3Callback("runs/", agent=0))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onlooker.core.extras import needs_extra

if TYPE_CHECKING:
    from onlooker.data.record.accelerate import record_accelerated
    from onlooker.data.record.lightning import LightningCallback
    from onlooker.data.record.sb3 import SB3Callback
    from onlooker.data.record.transformers import TransformersCallback

__all__ = ["LightningCallback", "SB3Callback", "TransformersCallback", "record_accelerated"]

# The module of each, the extra that it needs, and what for.
_HOME = {
    "LightningCallback": ("lightning", "trainers", "the callback for Lightning"),
    "SB3Callback": ("sb3", "rl", "the callback for stable-baselines3"),
    "TransformersCallback": ("transformers", "trainers", "the callback for transformers' Trainer"),
    "record_accelerated": ("accelerate", "trainers", "recording under Accelerate"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onlooker.callbacks' has no attribute {name!r}")
    module, extra, what = _HOME[name]
    with needs_extra(extra, what):
        return getattr(import_module(f"onlooker.data.record.{module}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
