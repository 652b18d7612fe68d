"""Cases of tests that have several axes: all pairs of values in place of the whole product.

What breaks one combination of three values and none of the pairs in it has to come from code that looks at all three,
which the axes that are thinned out in this way do not have: a kernel knows its codecs, and not the option that a check
sets beside them. Where code does look at more, a test takes the product.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*sizes: int) -> list[tuple[int, ...]]:
    """Places on axes of these sizes: few of them, the same ones every time, and every two values meet in one."""
    missing = {
        (one, a, other, b)
        for one, other in combinations(range(len(sizes)), 2)
        for a, b in product(range(sizes[one]), range(sizes[other]))
    }
    cases = []
    while missing:
        one, a, other, b = min(missing)
        case = {one: a, other: b}
        for axis in sorted(set(range(len(sizes))) - case.keys(), key=lambda axis: -sizes[axis]):
            new = [len(missing & set(_pairs({**case, axis: value}))) for value in range(sizes[axis])]
            case[axis] = new.index(max(new))
        missing -= set(_pairs(case))
        cases.append(tuple(case[axis] for axis in range(len(sizes))))
    return cases


def _pairs(case: dict[int, int]) -> Iterable[tuple[int, int, int, int]]:
    for one, other in combinations(sorted(case), 2):
        yield one, case[one], other, case[other]


def covering(*, each: dict[str, Iterable[Any]] | None = None, **axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parameters of a test: every two values of these axes meet. Of the axes in `each` every value has a turn, beside
    whatever comes: for what has nothing to do with the others. A dictionary has its keys as ids."""
    turns = {name: _values(values) for name, values in (each or {}).items()}
    pairs = {name: _values(values) for name, values in axes.items()}
    places = (
        pairwise(*map(len, pairs.values())) if len(pairs) > 1 else [(i,) for v in pairs.values() for i in range(len(v))]
    )
    cases = []
    for number in range(max(map(len, [places, *turns.values()]))):
        taken = [values[place] for values, place in zip(pairs.values(), places[number % len(places)], strict=True)]
        # One further each time around, or a value would meet the same ones for ever.
        taken += [values[(number + number // len(values)) % len(values)] for values in turns.values()]
        values, marks, names = zip(*taken, strict=True)
        cases.append(pytest.param(*values, marks=[mark for some in marks for mark in some], id="-".join(names)))
    return pytest.mark.parametrize((*pairs, *turns), cases)


def _values(values: Iterable[Any]) -> list[tuple[Any, Any, str]]:
    """Value, marks and id of each."""
    if isinstance(values, dict):
        return [(value, (), name) for name, value in values.items()]
    whole = [value if hasattr(value, "marks") else pytest.param(value) for value in values]
    return [(*one.values, one.marks, one.id or getattr(one.values[0], "__name__", str(one.values[0]))) for one in whole]
