"""Where work is done: `each(function, items, common)` yields function(item, common) in the order of the items.

The engines differ in where a call runs, never in what it returns: in this process, in processes of this machine, or on
the nodes of a Ray cluster. A call that is lost with its worker is made again. Every call has linear algebra on one
thread, because the last bits of a sum depend on the number of threads.
"""

from onlooker.workers.engine import Engine, Workers, check_workers, engine_for

__all__ = ["Engine", "Workers", "check_workers", "engine_for"]
