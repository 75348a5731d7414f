"""What holds for every test: how XLA compiles, strict types and shapes, and how hypothesis looks for counterexamples.

Half of the seconds of the suite went into XLA's compiler. Here it emits simpler loops and optimises them less, which
takes half as long to compile; runs of chains are as fast. XLA_FLAGS=--xla_backend_optimization_level=3 compiles as it
does for users; `make test-slow` runs the laws so, and `tools/digests.py` and the benchmarks do.

JAX promotes neither dtypes nor ranks by itself here: an array that is added to another of a different kind is a mistake
more often than a wish. The shapes of the public arrays are checked by tests/support/shapes.py.
"""

import os
import tempfile

import pytest
from hypothesis import configuration, settings

# Before XLA starts; xdist's workers and the processes that tests start inherit it.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1")

# The same few examples every time, and nothing is kept on the disk.
SCRATCH = tempfile.TemporaryDirectory(prefix="hypothesis-")
configuration.set_hypothesis_home_dir(SCRATCH.name)
settings.register_profile("few", max_examples=25, derandomize=True, deadline=None, database=None)
settings.load_profile("few")


@pytest.fixture
def promotion_allowed():
    """For code that users write: JAX as they have it."""
    import jax

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # xdist's controller runs no test.
    import jax

    from tests.support.shapes import check_public_arrays

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    check_public_arrays()
