"""The table of a comparison."""

from __future__ import annotations

from benchmarks.compare import Measured, Row

HEAD = ("method", "time", "from-to", "floor", "peak", "slower", "more memory", "error")


def table(measured: Measured) -> str:
    """Ratios are to tangentlens; the floor is what the method's own counted flops take at the matmul rate."""
    ours = measured.rows[0]
    lines = [HEAD] + [_cells(row, ours, measured.matmul_rate) for row in measured.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    title = f"{measured.comparison.title}   (matmul {measured.matmul_rate / 1e9:.0f} GFLOP/s)"
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    skipped = [f"{row.method}: not run, {row.skipped}" for row in measured.rows if row.skipped]
    return "\n".join([title, *rows, *skipped])


def _cells(row: Row, ours: Row, rate: float) -> tuple[str, ...]:
    if row.skipped:
        return (row.method, *"-" * (len(HEAD) - 1))
    spread = f"{_seconds(min(row.seconds))}-{_seconds(max(row.seconds))}"
    slower = f"{row.time / ours.time:.3g}x" if ours.seconds else "-"
    more = f"{row.peak / ours.peak:.3g}x" if ours.peak else "-"
    floor = _seconds(row.flops / rate)
    return row.method, _seconds(row.time), spread, floor, _bytes(row.peak), slower, more, f"{row.error:.1e}"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _bytes(value: int) -> str:
    return f"{value / 2**20:.0f} MiB" if value < 2**30 else f"{value / 2**30:.2f} GiB"
