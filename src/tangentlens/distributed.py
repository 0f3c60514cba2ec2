"""Many processes, one computation: rows are shared out, blocks travel around the ring, and a failure is everybody's.

No formula knows how many processes there are; a process alone is a job of one. Every exchange begins with an agreement,
one number from each rank. A rank that fails says so at the next agreement, wherever it was, so that no other waits.
"""

from __future__ import annotations

import io
import pickle
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from tangentlens.errors import BadInput, RankFailed

if dist.is_available():
    from torch.distributed import ProcessGroup
else:  # pragma: no cover: torch built without it, as on some laptops

    class ProcessGroup:  # type: ignore[no-redef]
        """Stands for what this build of torch does not have."""


Ranks = ProcessGroup | bool | Literal["world"] | None
"""The processes that share the work: a group, True or "world" for the default one, nothing for this process alone."""
Result = TypeVar("Result")
Span = tuple[int, int]

_FINE, _AGAIN, _FAILED = 0, 1, 2


class Again(Exception):
    """Another process has to start its work anew, so everybody does."""


@contextmanager
def joined(ranks: Ranks) -> Iterator[Job]:
    """Work together inside the block: an error on one rank is an error on all of them when it is left."""
    job = _job(ranks)
    try:
        yield job
        job.agree()
    except RankFailed:
        raise
    except BaseException as error:
        job.tell(error)
        raise


def _job(ranks: Ranks) -> Job:
    if ranks is None or ranks is False:
        return ALONE
    if not (ranks is True or ranks == "world" or isinstance(ranks, ProcessGroup)):
        raise BadInput(f"ranks= is a process group, True for the default one, or nothing, got {ranks!r}")
    if not (dist.is_available() and dist.is_initialized()):
        raise BadInput(
            "ranks= needs the processes of a job, got none; start with torchrun and call "
            "torch.distributed.init_process_group(), or pass ranks=torch.distributed.is_initialized()"
        )
    group = ranks if isinstance(ranks, ProcessGroup) else dist.group.WORLD
    if dist.get_rank(group) < 0:
        raise BadInput("ranks= must be a group this process belongs to; call on its members only")
    return Job(group)


class Job:
    """The processes that share one computation, as this one sees them."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self.group = group
        self.size = 1 if group is None else dist.get_world_size(group)
        self.rank = 0 if group is None else dist.get_rank(group)
        self._on_cards = group is not None and dist.get_backend(group) == "nccl"
        self._told = False

    @property
    def first(self) -> bool:
        return self.rank == 0

    def shares(self, length: int, grain: int = 1) -> list[Span]:
        """The examples of each rank, as even as multiples of `grain` allow; some may be empty.

        >>> ALONE.shares(7)
        [(0, 7)]
        """
        units = -(-length // grain)
        edges = [min(length, grain * (units * rank // self.size)) for rank in range(self.size + 1)]
        return list(zip(edges[:-1], edges[1:]))

    # agreement

    def agree(self) -> None:
        """Go on when everybody does."""
        self._flag(_FINE)

    def ask_again(self) -> None:
        """This rank has to start anew; the others hear of it as `Again`."""
        self._flag(_AGAIN)

    def tell(self, error: BaseException) -> None:
        """Let the others fail with this rank, once."""
        if self.size == 1 or self._told or getattr(error, "_told_to_ranks", False):
            return
        self._told = True
        try:
            error._told_to_ranks = True  # type: ignore[attr-defined]
            self._flag(_FAILED, f"{type(error).__name__}: {error}")
        except RankFailed:
            pass

    def _flag(self, mine: int, message: str = "") -> None:
        if self.size == 1:
            return
        with self._heard(), self._card():
            flag = torch.tensor([mine], device=self._device())
            dist.all_reduce(flag, dist.ReduceOp.MAX, group=self.group)
            highest = int(flag)
            if highest == _FAILED:
                messages: list[Any] = [None] * self.size
                dist.all_gather_object(messages, message, group=self.group)
        if highest == _FAILED:
            self._told = True
            told = "; ".join(f"rank {rank} failed with {text}" for rank, text in enumerate(messages) if text)
            raise RankFailed(f"{told}. All ranks of the job end here; tiles already written with out= are kept")
        if highest == _AGAIN and mine != _AGAIN:
            raise Again

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """A rank that is gone without a word shows as an error of the transport, or as its timeout."""
        try:
            yield
        except RankFailed:
            raise
        except RuntimeError as error:
            self._told = True
            raise RankFailed(
                f"rank {self.rank} of {self.size} lost the others: one of them ended without a word, or did not answer "
                f"in the group's timeout ({str(error).splitlines()[0]}). Tiles already written with out= are kept"
            ) from error

    # exchange

    def objects(self, value: Any) -> list[Any]:
        """What every rank has to say, by rank."""
        if self.size == 1:
            return [value]
        self.agree()
        values: list[Any] = [None] * self.size
        with self._heard(), self._card():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def from_first(self, work: Callable[[], Result]) -> Result:
        """What the first rank's work returns, on every rank; tensors arrive where this group carries them."""
        if self.size == 1:
            return work()
        return self.sent(work() if self.first else None, 0)

    def sent(self, value: Any, sender: int) -> Any:
        """One rank's value, on every rank."""
        if self.size == 1:
            return value
        packet, tensors = packed(value) if self.rank == sender else (b"", [])
        self.agree()
        head = [(packet, [_kind(tensor) for tensor in tensors])]
        source = self._global(sender)
        with self._heard(), self._card():
            dist.broadcast_object_list(head, src=source, group=self.group)
            packet, kinds = head[0]
            tensors = tensors if self.rank == sender else [self._empty(kind) for kind in kinds]
            moved = [self._carried(tensor) for tensor in tensors]
            for tensor in moved:
                dist.broadcast(tensor, src=source, group=self.group)
        return value if self.rank == sender else unpacked(packet, moved)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        if self.size == 1:
            return tensor
        self.agree()
        carried = self._carried(tensor)
        with self._heard():
            dist.all_reduce(carried, group=self.group)
        return tensor if carried is tensor else tensor.copy_(carried)

    def sums(self, named: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        """The sums over ranks of tensors that some may lack."""
        if self.size == 1:
            return named
        kinds: dict[str, tuple[torch.Size, torch.dtype]] = {}
        for other in self.objects({name: _kind(tensor) for name, tensor in named.items()}):
            kinds = other | kinds
        return {
            name: self.sum(named[name] if name in named else torch.zeros(shape, dtype=dtype, device=device))
            for name, (shape, dtype) in sorted(kinds.items())
        }

    def rows(self, mine: Tensor, shares: list[Span]) -> Tensor:
        """All rows, from each rank's own."""
        if self.size == 1:
            return mine
        self.agree()
        whole = self._carried(mine.new_empty(shares[-1][1], *mine.shape[1:]))
        with self._heard():
            for rank, (start, stop) in enumerate(shares):
                if rank == self.rank:
                    whole[start:stop] = mine.to(whole.device)
                if stop > start:
                    dist.broadcast(whole[start:stop], src=self._global(rank), group=self.group)
        return whole.to(mine.device)

    def around(self, block: Result, half: bool) -> Generator[tuple[int, Result], None, None]:
        """This rank's block, then those of the ranks before it, each with its rank; every block makes the round.

        `half` of the round meets every pair of ranks; of a job of even size the last ones meet twice. The next block
        travels while one is looked at. Close the generator before failing: what is on its way must arrive.
        """
        if self.size == 1:
            yield self.rank, block
            return
        packet, tensors = packed(block)
        heads = self.objects((packet, [_kind(tensor) for tensor in tensors]))
        current = [self._carried(tensor) for tensor in tensors]
        place = tensors[0].device if tensors else self._device()
        steps = self.size // 2 if half else self.size - 1
        for shift in range(steps + 1):
            origin = (self.rank - shift) % self.size
            under_way: list[Any] = []
            if shift < steps:
                self.agree()
                incoming = [self._empty(kind) for kind in heads[(origin - 1) % self.size][1]]
                under_way = self._posted(current, incoming)
            try:
                here = block if shift == 0 else unpacked(heads[origin][0], [tensor.to(place) for tensor in current])
                yield origin, here
            finally:
                with self._heard():
                    for work in under_way:
                        work.wait()
            if shift < steps:
                current = incoming

    def _posted(self, outgoing: list[Tensor], incoming: list[Tensor]) -> list[Any]:
        after, before = self._global((self.rank + 1) % self.size), self._global((self.rank - 1) % self.size)
        moves = [dist.P2POp(dist.isend, tensor, after, self.group) for tensor in outgoing if tensor.numel()]
        moves += [dist.P2POp(dist.irecv, tensor, before, self.group) for tensor in incoming if tensor.numel()]
        with self._heard():
            return dist.batch_isend_irecv(moves) if moves else []

    # where things are

    def sharing(self, device: torch.device) -> int:
        """How many ranks of the job take their memory from the same place as this one."""
        place = socket.gethostname(), str(device) if device.type == "cuda" else "processor"
        return self.objects(place).count(place)

    def _global(self, rank: int) -> int:
        assert self.group is not None
        return dist.get_global_rank(self.group, rank)

    def _device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device()) if self._on_cards else torch.device("cpu")

    def _card(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(torch.cuda.current_device()) if self._on_cards else nullcontext()

    def _carried(self, tensor: Tensor) -> Tensor:
        """Where this group's transport can take it from, without gaps."""
        fits = tensor.is_cuda == self._on_cards
        return (tensor if fits else tensor.to(self._device())).contiguous()

    def _empty(self, kind: tuple[torch.Size, torch.dtype]) -> Tensor:
        return torch.empty(kind[0], dtype=kind[1], device=self._device())


ALONE = Job(None)


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def packed(value: Any) -> tuple[bytes, list[Tensor]]:
    """A value without its tensors, and its tensors: whatever classes it is made of, no copy of the numbers is made."""
    tensors: list[Tensor] = []

    class Packer(pickle.Pickler):
        def persistent_id(self, item: Any) -> int | None:
            if not isinstance(item, Tensor):
                return None
            tensors.append(item)
            return len(tensors) - 1

    buffer = io.BytesIO()
    Packer(buffer).dump(value)
    return buffer.getvalue(), tensors


def unpacked(packet: bytes, tensors: list[Tensor]) -> Any:
    """The value again, around these tensors."""

    class Unpacker(pickle.Unpickler):
        def persistent_load(self, number: int) -> Tensor:
            return tensors[number]

    return Unpacker(io.BytesIO(packet)).load()
