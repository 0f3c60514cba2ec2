"""What can go wrong, and the exit status of the command line for each."""

from __future__ import annotations


class BadInput(ValueError):
    """What was handed over cannot be used; the message says expected, got, do. Exit status 2."""

    exit_status = 2


class RefusedForMemory(MemoryError):
    """The work would not fit; the message gives rows, bytes, free memory and the ways on. Exit status 3."""

    exit_status = 3


class ClaimOutsideTolerance(Exception):
    """A study ran to its end and a claim did not hold. Exit status 4."""

    exit_status = 4


class NonFiniteKernel(BadInput):
    """A kernel holds inf or nan; the message names the first example, output and layer."""


class NonDeterministicModel(BadInput):
    """Two forward passes on the same inputs differ, so that no kernel is defined."""


class DifferentRun(BadInput):
    """A run on disk was made by another model or probe, and would be mixed with this one."""


class RankFailed(RuntimeError):
    """Another process of the job failed; the message says which one and how. Exit status 1."""

    exit_status = 1


def exit_status(error: BaseException) -> int | None:
    """The exit status an error asks for; None for an error that nobody foresaw, which deserves its traceback."""
    if isinstance(error, BadInput | ClaimOutsideTolerance | RankFailed):
        return error.exit_status
    if isinstance(error, MemoryError) or _out_of_memory(error):
        return RefusedForMemory.exit_status
    if isinstance(error, ValueError | TypeError | OSError):
        return BadInput.exit_status
    return None


def _out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of memory; told by its words, because this file is read before torch is."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
