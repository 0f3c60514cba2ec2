"""Run the command line as ``python -m tangentlens``, also under torchrun."""

from __future__ import annotations

import sys

from tangentlens.cli import main

if __name__ == "__main__":
    sys.exit(main())
