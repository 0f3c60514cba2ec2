"""``tangentlens doctor``: what this installation can do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from tangentlens import __version__
from tangentlens.cli.commands import Doctor
from tangentlens.cli.starting import seconds_to_start

NEEDED = [
    "torch",
    "jaxtyping",
    "numpy",
    "scipy",
    "scikit-learn",
    "xarray",
    "zarr",
    "icechunk",
    "tyro",
    "tqdm",
    "plotly",
]
OPTIONAL = {
    "lightning": "the Lightning callback",
    "transformers": "the Hugging Face Trainer callback",
    "tensorboard": "scalars to TensorBoard",
    "wandb": "scalars to Weights & Biases",
    "pandas": "export to CSV",
    "pyarrow": "export to Parquet",
    "netCDF4": "export to netCDF",
}


def run(settings: Doctor) -> int:
    """Print versions, devices, memory, packages and what starting costs; exit status 2 where one is missing."""
    print(f"tangentlens  {__version__}")
    print(f"python       {platform.python_version()} on {platform.platform()}")
    missing = [name for name in NEEDED if installed(name) is None]
    for name in NEEDED:
        print(f"{name:<12} {installed(name) or 'MISSING; run: pip install ' + name}")
    print()
    for name, purpose in OPTIONAL.items():
        print(f"{name:<12} {installed(name) or 'not installed':<16} {purpose}")
    if "torch" not in missing:
        print()
        print("\n".join(devices()))
    print()
    for words, seconds in seconds_to_start().items():
        print(f"{words:<20} {seconds:.2f} s of processor time")
    return 2 if missing else 0


def installed(name: str) -> str | None:
    """A distribution's version, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def devices() -> list[str]:
    """One line per device: its name and the memory that is free."""
    import torch

    lines = [f"cpu          {os.cpu_count()} cores, {torch.get_num_threads()} threads, {free_memory()} free"]
    for index in range(torch.cuda.device_count()):
        free, whole = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        lines.append(f"cuda:{index}       {name}, {free / 2**30:.1f} of {whole / 2**30:.1f} GiB free")
    if torch.backends.mps.is_available():
        lines.append("mps          Apple GPU, sharing the memory above")
    return lines


def free_memory() -> str:
    """Memory that a new process could take, as the operating system counts it."""
    try:
        with open("/proc/meminfo") as listing:
            available = next(line for line in listing if line.startswith("MemAvailable"))
        return f"{int(available.split()[1]) / 2**20:.1f} GiB"
    except (OSError, StopIteration):
        return "unknown memory"
