"""How hypothesis looks for counterexamples: the same few every time, and nothing is kept on the disk."""

import tempfile

from hypothesis import configuration, settings

SCRATCH = tempfile.TemporaryDirectory(prefix="hypothesis-")
configuration.set_hypothesis_home_dir(SCRATCH.name)
settings.register_profile("few", max_examples=25, derandomize=True, deadline=None, database=None)
settings.load_profile("few")
