"""How much memory there is, and the refusal when it is not enough."""

from __future__ import annotations

from pathlib import Path

import torch

from tangentlens.errors import RefusedForMemory


def free_bytes(device: torch.device) -> int:
    """Memory this process could still take on the device."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    available = _meminfo("MemAvailable")
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    if limit is not None and used is not None:
        available = min(available, max(limit - used, 0))
    return min([available, *_left_of_limits()])


def refuse_unless_it_fits(what: str, rows: int, columns: int, needed: int, device: torch.device) -> None:
    free = free_bytes(device)
    if needed > free:
        raise RefusedForMemory(
            f"{what} of {rows:,} x {columns:,} needs {in_units(needed)}, got {in_units(free)} free on {device}; "
            "measure fewer examples or outputs (outputs=), or average over outputs with entk, "
            "or never form it: entk_product and top_spectrum"
        )


def in_units(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TiB"


def _left_of_limits() -> list[int]:
    """What `ulimit -d` and `ulimit -v` leave this process, where they are set."""
    try:
        import resource  # not on every system
    except ImportError:
        return []
    left = []
    for limit, entry in ((resource.RLIMIT_DATA, "VmData"), (resource.RLIMIT_AS, "VmSize")):
        allowed, taken = resource.getrlimit(limit)[0], _bytes_of(entry, Path("/proc/self/status"))
        if allowed != resource.RLIM_INFINITY and taken is not None:
            left.append(max(allowed - taken, 0))
    return left


def _meminfo(entry: str) -> int:
    found = _bytes_of(entry, Path("/proc/meminfo"))
    return 8 << 30 if found is None else found  # no way to ask on this system: assume a small laptop


def _bytes_of(entry: str, file: Path) -> int | None:
    try:
        for line in file.read_text().splitlines():
            if line.startswith(entry):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def _cgroup(name: str) -> int | None:
    try:
        text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
