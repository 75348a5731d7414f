"""Conformance checks that every inverse learner, every fit and every Observer must pass, whatever it computes.

    from onlooker.testing import Case, check_learner
    check_learner(Case(lambda: my_learner(step_size=1e-3), lambda dtype: recorded(observations, dtype)))

A learner proposes its own cases: `learner_cases(package)` finds them. A check is a function of a case that raises
`BrokenError`; to add one, write it and list it. The checks cover bookkeeping; whether a learner samples the right
law is for its own tests.
"""

from onlooker.core.conformance import BrokenError
from onlooker.engine.conformance import LEARNER_CHECKS, Case, check_learner, learner_cases
from onlooker.fit.conformance import FIT_CHECKS, FitCase, check_fit
from onlooker.inverse.examples import Example
from onlooker.live.conformance import OBSERVER_CHECKS, Seen, check_observer

__all__ = [
    "FIT_CHECKS",
    "LEARNER_CHECKS",
    "OBSERVER_CHECKS",
    "BrokenError",
    "Case",
    "Example",
    "FitCase",
    "Seen",
    "check_fit",
    "check_learner",
    "check_observer",
    "learner_cases",
]
