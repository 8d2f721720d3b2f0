"""Carry out read plans: read the byte ranges and decode them to arrays.

A range that holds nothing but a part of one slice is decoded as it comes in, while the bytes are in the processor's cache. Ranges
that several slices share are kept until these are cut out of them. Streams (compressed arrays) are gone through once, never held.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kinprint.formats.dtypes import ITEM_BYTES, Array, Landing, decode
from kinprint.formats.plan import PlanNode, PlanPiece, ReadPlan, Run, TensorSlice
from kinprint.formats.tensors import Streamed
from kinprint.sources.base import Buffer, Request, Sink, Source
from kinprint.sources.session import Session

STREAM_BYTES = 64 << 20  # of what is streamed, held at a time


def carry_out(session: Session, plans: Sequence[tuple[Sequence[Source], ReadPlan]]) -> list[list[Array]]:
    """Read the ranges of all plans together, and return the arrays of their slices."""
    session.admit(sum(plan.nbytes for _, plan in plans))
    jobs = [_Job(session, sources, plan) for sources, plan in plans]
    session.read_through([request for job in jobs for request in job.requests()])
    return [job.results() for job in jobs]


class _Job:
    """The reading of one plan."""

    def __init__(self, session: Session, sources: Sequence[Source], plan: ReadPlan) -> None:
        self._session, self._sources, self._plan = session, sources, plan
        self._buffers: dict[int, memoryview] = {}
        self._landings: dict[int, Landing] = {}
        self._streams: dict[int, tuple[Streamed, list[Run]]] = {}  # by leaf: the intervals that are wanted
        self._places: dict[int, int] = {}  # of a streaming node's first interval among these
        self._later: list[int] = []  # ranges of a long stream that are held
        for node in plan.nodes:
            self._note_streams(node)

    def _note_streams(self, node: PlanNode) -> None:
        made = node.item.tensor.made
        if made is None:
            return
        if node.leaf is not None and isinstance(made, Streamed):
            wanted = self._streams.setdefault(node.leaf, (made, []))[1]
            self._places[id(node)] = len(wanted)
            wanted += node.intervals
        for _, _, parts in node.made:
            for part in parts:
                self._note_streams(part)

    def requests(self) -> list[Request]:
        """Return the requests that are read together: all, except those of long streams."""
        plan = self._plan
        users = [0] * len(plan.ranges)
        for pieces in plan.pieces:
            for piece in pieces:
                users[piece.range_index] += 1
        later: set[int] = set()
        if sum(plan.leaves[leaf].nbytes for leaf in self._streams) > STREAM_BYTES:
            later = {piece.range_index for leaf in self._streams for piece in plan.pieces[leaf]}
        sinks: dict[int, tuple[Sink, int]] = {}
        for leaf, (item, pieces) in enumerate(zip(plan.leaves, plan.pieces, strict=True)):
            if leaf in self._streams:
                continue
            later.difference_update(piece.range_index for piece in pieces)
            if self._lands(item, pieces, users):
                elements = sum(stop - start for start, stop in item.runs)
                landing = self._landings[leaf] = Landing(item.tensor.dtype, elements, self._session.memory.take)
                sinks |= {piece.range_index: (landing, piece.target) for piece in pieces}
        found: list[Request] = []
        for number, span in enumerate(plan.ranges):
            if number not in later:
                sink, first = sinks.get(number) or (self._buffer(number), 0)
                found.append((self._sources[plan.files[number]], span, sink, first))
        return found

    def _lands(self, item: TensorSlice, pieces: Sequence[PlanPiece], users: Sequence[int]) -> bool:
        """Whether no other slice shares the ranges of a stored slice, and every element decodes by itself."""
        dtype, ranges = item.tensor.dtype, self._plan.ranges
        if not pieces or dtype not in ITEM_BYTES:
            return False
        size = ITEM_BYTES[dtype]
        return all(
            users[piece.range_index] == 1
            and piece.length == len(ranges[piece.range_index])
            and not (piece.target % size or piece.length % size)
            for piece in pieces
        )

    def _buffer(self, number: int) -> Buffer:
        memory = self._session.memory.take(len(self._plan.ranges[number])).data
        self._buffers[number] = memory
        return Buffer(memory)

    def results(self) -> list[Array]:
        """Decode the streams, cut the slices out of what was read, and build those that are made of others."""
        first = {leaf: min((p.range_index for p in self._plan.pieces[leaf]), default=0) for leaf in self._streams}
        made = {leaf: self._streamed(leaf) for leaf in sorted(first, key=first.__getitem__)}
        return [self._realise(node, made) for node in self._plan.nodes]

    def _streamed(self, leaf: int) -> list[Array]:
        maker, wanted = self._streams[leaf]
        intake = maker.begin(wanted)
        for piece in self._plan.pieces[leaf]:
            if piece.range_index not in self._buffers:
                self._read_on(piece.range_index)
            intake.feed(self._buffers[piece.range_index][piece.offset : piece.offset + piece.length])
        return intake.finish()

    def _read_on(self, number: int) -> None:
        """Read the next ranges of a long stream, and drop those before."""
        plan, nbytes, requests = self._plan, 0, list[Request]()
        for old in self._later:
            self._buffers.pop(old, None)
        self._later.clear()
        while number < len(plan.ranges) and number not in self._buffers and nbytes < STREAM_BYTES:
            requests.append((self._sources[plan.files[number]], plan.ranges[number], self._buffer(number), 0))
            self._later.append(number)
            nbytes += len(plan.ranges[number])
            number += 1
        self._session.read_through(requests)

    def _realise(self, node: PlanNode, made: Mapping[int, list[Array]]) -> Array:
        item, leaf = node.item, node.leaf
        if leaf is not None and leaf in made:
            place = self._places[id(node)]
            built = made[leaf][place : place + len(node.intervals)]
        elif leaf is not None:
            if leaf in self._landings:
                return item.trimmed(self._landings[leaf].values)
            return item.trimmed(decode(self._joined(leaf), item.tensor.dtype, tensor=item.tensor.name))
        else:
            maker = item.tensor.made
            assert maker is not None
            assert not isinstance(maker, Streamed)
            built = [
                maker.build(start, stop, [self._realise(part, made) for part in parts]).reshape(-1)
                for start, stop, parts in node.made
            ]
        if not built:
            return np.zeros(item.shape, dtype=np.float32)
        return item.trimmed(built[0] if len(built) == 1 else np.concatenate(built))

    def _joined(self, leaf: int) -> memoryview:
        pieces = self._plan.pieces[leaf]
        parts = [self._buffers[piece.range_index][piece.offset : piece.offset + piece.length] for piece in pieces]
        if len(pieces) == 1:
            return parts[0]
        raw = self._session.memory.take(self._plan.leaves[leaf].nbytes).data
        for piece, part in zip(pieces, parts, strict=True):
            raw[piece.target : piece.target + piece.length] = part
        return raw
