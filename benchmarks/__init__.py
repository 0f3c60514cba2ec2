"""tangentlens beside PyTorch's own recipe: time, peak memory, error, and the floor that counted operations set.

`python -m benchmarks` runs every workload, `python -m benchmarks.mlp --help` shows the sizes of one.
"""
