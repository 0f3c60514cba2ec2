"""Other ways to a tangent kernel, each in an environment of its own, measured on the same files as tangentlens.

`python -m benchmarks peers` makes the environments under .peers/ once and prints a table per workload.
"""
