"""Every workload, or those named, at their own sizes; flags after the names are passed on to each.

`peers`, `growth` and `scale-out` as the first word run those instead: they take minutes to hours.
"""

from __future__ import annotations

import sys

from benchmarks import cnn, mlp, modular_addition, transformer

WORKLOADS = {"mlp": mlp, "cnn": cnn, "transformer": transformer, "modular_addition": modular_addition}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["peers"]:
        from benchmarks.peers.__main__ import main as peers

        return peers(arguments[1:])
    if arguments[:1] == ["scale-out"]:
        from benchmarks.scale_out import main as scale_out

        return scale_out(arguments[1:])
    if arguments[:1] == ["growth"]:
        from benchmarks.growth import main as growth

        return growth(arguments[1:])
    names = [argument for argument in arguments if argument in WORKLOADS]
    flags = [argument for argument in arguments if argument not in WORKLOADS]
    if flags and not flags[0].startswith("-"):
        print(f"no workload is called {flags[0]!r}; there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    for name in names or WORKLOADS:
        WORKLOADS[name].main(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
