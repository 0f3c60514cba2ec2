"""Every workload, or those named, at their own sizes; flags after the names are passed on to each."""

from __future__ import annotations

import sys

from benchmarks import cnn, mlp, modular_addition, transformer

WORKLOADS = {"mlp": mlp, "cnn": cnn, "transformer": transformer, "modular_addition": modular_addition}


def main(arguments: list[str]) -> int:
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
