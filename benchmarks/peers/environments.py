"""Where each peer runs: a virtual environment of its own under .peers/, made once from its requirements.txt."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
FOLDER = CHECKOUT / ".peers"

# peer -> its methods, the one expected to be fastest first; a peer without requirements runs in the project's own
PEERS = {
    "tangentlens": ("exact",),
    "neural_tangents": ("structured", "structured-blocks", "contraction", "products"),
    "vivit": ("Gram",),
    "nngeometry": ("dense",),
    "asdl": ("Hadamard", "direct"),
    "torchjd": ("autogram", "autogram-whole"),
    "backpack": ("BatchGrad",),
    "torch_func": ("tuned", "tutorial"),
}


def python_of(peer: str) -> Path:
    """The peer's interpreter; its environment is made first where it is missing or its requirements have changed."""
    requirements = HERE / peer / "requirements.txt"
    if not requirements.is_file():
        return Path(sys.executable)
    folder = FOLDER / peer
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == wanted):
        _install(folder, python, requirements)
        stamp.write_text(wanted)
    return python


def _install(folder: Path, python: Path, requirements: Path) -> None:
    print(f"making {folder.relative_to(CHECKOUT)} ...", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = [line for line in requirements.read_text().splitlines() if line.startswith("torch==")]
    for what in ([pinned] if pinned else []) + [["-r", str(requirements)]]:
        # the pinned torch first and alone: a peer's open range would bring gigabytes of another build
        subprocess.run([*pip, *what], check=True)
