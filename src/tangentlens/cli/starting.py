"""What it costs to begin: processor time of the import and of the command line's help, in a fresh interpreter each."""

from __future__ import annotations

import subprocess
import sys

SNIPPETS = {
    "import tangentlens": "import tangentlens",
    "tangentlens --help": "import contextlib, io; from tangentlens.cli import main\n"
    "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--help'])",
}
TIMED = """import time
before = time.process_time()
{snippet}
print(time.process_time() - before)"""


def seconds_to_start() -> dict[str, float]:
    """Processor seconds of each, without those of the interpreter itself; the least of three tries."""
    return {words: min(_timed(snippet) for _ in range(3)) for words, snippet in SNIPPETS.items()}


def _timed(snippet: str) -> float:
    code = TIMED.format(snippet=snippet)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
