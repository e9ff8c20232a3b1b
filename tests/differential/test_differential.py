"""A short search with fixed seeds, so that failures can be reproduced."""

import warnings

import pytest
from search import Search

PROGRAMS = 120  #: in each of four parts, which CTest runs in parallel


@pytest.mark.parametrize("part", range(4))
def test_random_programs(part, capsys):
    warnings.simplefilter("ignore")
    search = Search().run(first=100_000 * (part + 1), count=PROGRAMS, seconds=3600)
    with capsys.disabled():
        print("\n" + search.summary())
    assert not search.faults, "\n".join(search.faults[:10])
    assert search.programs == PROGRAMS and search.raised < PROGRAMS / 2
    for codec in ("exact: mask", "exact: index", "exact: shape only", "exact: shared", "mask", "index", "rotated", "affine", "cast"):
        assert search.saves[codec] > 0, f"no program kept anything as {codec}"
