"""`reconstruct` in one to three dimensions, on mild and on steep rewards; the figures are those of `benchmarks.above3`.

python -m benchmarks.upto3 [--only counts] [--seeds 2] [--rows 2000]
"""

from collections.abc import Iterator

from benchmarks import families
from benchmarks.above3 import Case, case, main


def _cases() -> Iterator[Case]:
    for rows in (2000, 20_000, 200_000):
        for dim in (1, 2, 3):
            yield case("mixture", families.mixture, dim, rows)
            yield case("counts", families.counts, dim, rows)
        for dim in (2, 3):
            yield case("Rosenbrock", families.chain, dim, rows)
            yield case("returns", families.returns, dim, rows)
            yield case("saturating", families.saturating, dim, rows)
            yield case("collinear", families.collinear, dim, rows)
            yield case("quadratic", families.quadratic, dim, rows)
        yield case("hierarchical", families.hierarchical, 3, rows)
        yield case("process counts", families.process_counts, 3, rows)


CASES = tuple(_cases())


if __name__ == "__main__":
    main(CASES, __doc__)
