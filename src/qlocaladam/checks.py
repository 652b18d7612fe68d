"""Checks of numbers that people give: a ValueError names the key, the value and what is accepted."""

from __future__ import annotations

import math
from numbers import Integral, Real


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """`value` as an int, or a ValueError that names it. True, 2.0 and "2" are not whole numbers."""
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
        if number >= least and (most is None or number <= most):
            return number
    accepted = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise ValueError(f"{name} must be a whole number {accepted}, got {value!r}")


def finite_number(name: str, value: object, zero: bool = False, otherwise: str = "") -> float:
    """`value` as a float, or a ValueError that names it. Above 0, or with `zero` also that.

    `otherwise`: what is accepted besides, for the error.
    """
    if not isinstance(value, bool) and isinstance(value, Real):
        number = float(value)
        if 0 < number < math.inf or (zero and number == 0):
            return number
    bound = "of at least 0" if zero else "greater than 0"
    raise ValueError(f"{name} must be a finite number {bound}{otherwise}, got {value!r}")
