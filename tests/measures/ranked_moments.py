"""Forward moments over two gloo processes, the second without some of what the first has: started by a test.

python -m tests.measures.ranked_moments FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tangentlens.errors import BadInput
from tangentlens.measures.forward_moments import forward_moments, merged
from tests.measures.forward_examples import lazy_network


def one_rank(folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    features, outputs, targets, _ = lazy_network()
    own = range(rank, 6, 2)
    parts = [forward_moments(features[g::6], outputs[g::6], targets[g::6]) for g in own]
    found = {"shared": merged(parts, ranks=True), "first alone": merged(parts if rank == 0 else [], ranks=True)}
    errors = {}
    for name, mine in {
        "nobody": [],
        "different": [forward_moments(features[:, : 3 + rank])],
    }.items():
        try:
            merged(mine, ranks=True)
        except BadInput as error:
            errors[name] = str(error)
    torch.save(found | {"errors": errors}, folder / f"{rank}.pt")


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    other = os.fork()
    one_rank(folder, 1 if other == 0 else 0)
    if other == 0:
        sys.stdout.flush()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(other, 0)[1])


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
