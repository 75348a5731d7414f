"""Record a loop of Accelerate: `onlooker.record` with what the Accelerator knows of accumulation.

    with record_accelerated(accelerator, optimizer, "runs/", agent=0):
        train()

`Accelerator.backward` divides the loss by the accumulated batches; only its first process records.
"""

from typing import Any

from onlooker.data.record.torch import Recording, Silent, record

__all__ = ["record_accelerated"]


def record_accelerated(accelerator: Any, optimizer: Any, log: Any, **options: Any) -> Recording | Silent:
    """Record every step of a prepared optimizer; the options are those of `onlooker.record`."""
    if not accelerator.is_main_process and not options.get("every_rank"):
        return Silent()
    return record(optimizer, log, averaged=True, **options)
