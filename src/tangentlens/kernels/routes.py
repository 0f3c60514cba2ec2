"""Three exact ways to the largest eigenmodes of a tangent kernel, and which of them costs least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Way = Literal["dense", "dual", "krylov"]
SMALL = 4096  # rows a dense eigendecomposition is cheap for


def chosen_route(rows: int, parameters: int, modes: int) -> Way:
    """The smaller side of J exactly while it is small, or while most of its modes are wanted; products beyond.

    >>> chosen_route(25_000, 550, 80), chosen_route(841, 44_544, 80), chosen_route(300_000, 44_544, 80)
    ('dual', 'dense', 'krylov')
    """
    side = min(rows, parameters)
    if side <= SMALL or modes > side // 4:
        return "dense" if rows <= parameters else "dual"
    return "krylov"


def vectors_at_once(rows: int, modes: int, block: int | None = None) -> tuple[int, int]:
    """How many vectors the krylov route multiplies at once (modes + 8 unless told), and how many it keeps."""
    block = min(rows, modes + 8 if block is None else block)
    return block, min(rows, 4 * max(block, modes + 8))


@dataclass(frozen=True)
class Route:
    """How `top_spectrum` would find the `modes` largest modes of a kernel of `rows` rows, and the numbers it holds."""

    way: Way
    modes: int
    rows: int
    parameters: int

    @property
    def numbers(self) -> int:
        """Entries of the largest matrices held beside the modes: K, J^T J, or the vectors and their images."""
        return {
            "dense": self.rows**2,
            "dual": self.parameters**2,
            "krylov": 2 * self.rows * vectors_at_once(self.rows, self.modes)[1],
        }[self.way] + self.rows * self.modes

    def __str__(self) -> str:
        words = {
            "dense": f"the kernel of {self.rows:,} rows itself, n^3",
            "dual": f"J^T J of {self.parameters:,} parameters, fewer than the {self.rows:,} rows; no kernel is formed",
            "krylov": f"products with up to {vectors_at_once(self.rows, self.modes)[0]:,} vectors; no kernel of "
            f"{self.rows:,} rows is formed",
        }
        return f"{self.modes:,} modes by {self.way}: {words[self.way]}"


def route_to(modes: int, rows: int, parameters: int) -> Route:
    """The route to so many modes; refused where the kernel has fewer above zero."""
    if not 1 <= modes <= min(rows, parameters):
        most = min(rows, parameters)
        raise ValueError(
            f"a kernel of {rows} rows and {parameters} parameters has at most {most} modes above zero, "
            f"got modes={modes}"
        )
    return Route(chosen_route(rows, parameters, modes), modes, rows, parameters)
