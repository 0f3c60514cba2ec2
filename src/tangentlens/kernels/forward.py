"""The forward-feature kernel: inner products of what a layer is given."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.probe import Inputs, probe
from tangentlens.distributed import Job, Ranks, joined
from tangentlens.errors import BadInput
from tangentlens.kernels.features import features


def forward_kernel(
    model: nn.Module, inputs: Inputs, layer: str | None = None, *, ranks: Ranks = None
) -> Float[Tensor, "example example"]:
    """<a[n], a[m]> at the layer's input (the head's, found by itself, when no layer is named); positions flattened."""
    with joined(ranks) as job:
        if job.size == 1:
            values = features(model, inputs, layer).values
            return values @ values.T
        return _shared_out(model, inputs, layer, job)


def _shared_out(model: nn.Module, inputs: Inputs, layer: str | None, job: Job) -> Float[Tensor, "example example"]:
    """Every rank reads the features of its own rows, and computes the rows of the kernel that belong to them."""
    examples = probe(inputs)
    shares = job.shares(examples.length)
    start, stop = shares[job.rank]
    # a rank without rows reads one, so as to know what the others send
    own = examples.rows(start, stop) if stop > start else examples.rows(0, 1)
    found = features(model, own.inputs, layer)
    read = job.objects(found.reading)
    if any(other != read[0] for other in read):
        raise BadInput(f"features were read differently on different rows, got {sorted(set(read))}; name a layer")
    places = max(job.objects(len(found.values) // max(1, stop - start)))
    mine = found.values[: (stop - start) * places].detach()
    rows = [(first * places, last * places) for first, last in shares]
    values = job.rows(mine, rows)
    return job.rows(mine @ values.T, rows)
