"""Callbacks that record a trainer's agent, one per trainer; each is imported when it is first used.

from onlooker.callbacks import SB3Callback

model.learn(10_000, callback=SB3Callback("runs/", agent=0))
"""

from typing import TYPE_CHECKING, Any

from onlooker.core.extras import needs_extra

if TYPE_CHECKING:
    from onlooker.data.record.sb3 import SB3Callback

__all__ = ["SB3Callback"]


def __getattr__(name: str) -> Any:
    if name == "SB3Callback":
        with needs_extra("rl", "the callback for stable-baselines3"):
            from onlooker.data.record.sb3 import SB3Callback
        return SB3Callback
    raise AttributeError(f"module 'onlooker.callbacks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
