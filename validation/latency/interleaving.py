"""The order in which candidates take turns.

In turns, because a machine's clock, caches and neighbours change over seconds: measured one after the other, the
candidates would see different machines. And in changing order, because whoever runs after a candidate that swept the
caches pays for it: over some rounds each candidate follows each other one equally often (Williams, 1949).
"""

from __future__ import annotations

__all__ = ["orders"]


def orders(count: int) -> list[list[int]]:
    """Orders of `count` candidates for the rounds, over and over: a Latin square balanced for who follows whom.

    Each candidate stands in each place equally often, and directly after each other one equally often. An even number
    needs as many orders as candidates, an odd one twice as many.
    """
    if count < 1:
        raise ValueError("no candidates")
    first = [0]
    low, high = 1, count - 1
    while low <= high:
        first.append(low)
        if low != high:
            first.append(high)
        low, high = low + 1, high - 1
    square = [[(place + shift) % count for place in first] for shift in range(count)]
    return square if count % 2 == 0 or count == 1 else square + [row[::-1] for row in square]
