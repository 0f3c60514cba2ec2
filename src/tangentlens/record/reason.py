"""Why the store could not read or write, in one line: Icechunk's own messages are stacks of a dozen."""

from __future__ import annotations


def is_of_the_store(error: BaseException) -> bool:
    """Whether Icechunk raised it; told by its name, so that asking imports nothing."""
    return type(error).__name__ == "IcechunkError"


def reason(error: BaseException) -> str:
    """The innermost cause of an error of the store, and any other error's own words.

    >>> told = type("IcechunkError", (Exception,), {})
    >>> reason(told("  x I/O error\\n  | context\\n  `-> early eof\\n")), reason(told("  x session error\\n  | \\n"))
    ('early eof', 'session error')
    """
    if not is_of_the_store(error):
        return str(error)
    lines = str(error).strip().splitlines()
    causes = [line.strip().removeprefix("`->") for line in lines if line.strip().startswith("`->")]
    return (causes[-1] if causes else lines[0].removeprefix("x ")).strip()
