"""Computes the reference of Example 2, the shipped ``a9a.npz``: a long Hamiltonian Monte Carlo run on a9a.

    python -m tools.make_reference --chains 1024 --warmup 200 --draws 400

takes a minute on an accelerator. The defaults, 64 chains of 1000 draws, are for two cores and a quarter of an hour.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from onlooker.simulation.exact.reference import FILE, hamiltonian, summarise
from onlooker.simulation.logistic import on_a9a


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--warmup", type=int, default=150)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    reward = on_a9a()
    samples = hamiltonian(reward, chains=options.chains, warmup=options.warmup, draws=options.draws, seed=options.seed)
    settings = f"--chains {options.chains} --warmup {options.warmup} --draws {options.draws} --seed {options.seed}"
    reference = replace(summarise(samples, reward), settings=settings)
    reference.save(options.out)
    print(
        f"{options.out}: {reference.draws} draws worth {reference.ess:.0f}, rhat {reference.rhat:.4f}; W1 error mean "
        f"{reference.error.mean():.4f}, max {reference.error.max():.4f}; "
        f"of the logits {reference.logit_error.mean():.4f}"
    )


if __name__ == "__main__":
    main()
