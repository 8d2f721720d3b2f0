"""Hold the resources of one run: settings, connections, threads, the range cache, the count of bytes, and the budget."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from kinprint._util.cores import cores, one_thread_for_products
from kinprint._util.sizes import format_size
from kinprint.errors import BadSelection, BadSetting, BudgetExceeded, FileTooLarge, KinprintError
from kinprint.refs import ByteRange, ModelRef, parse_ref, quotable
from kinprint.results.options import Options
from kinprint.sources.base import SMALL_FILE_CAP, Buffer, Folder, Request, Sink, Source, Traffic
from kinprint.sources.buffers import Recycler
from kinprint.sources.cache import RangeCache
from kinprint.sources.ledger import CHUNK_BYTES, Ledger
from kinprint.sources.local import LocalFolder
from kinprint.sources.pool import DaemonPool
from kinprint.sources.settings import Settings
from kinprint.text import Text

if TYPE_CHECKING:
    from kinprint.sources.http import HttpClient
    from kinprint.sources.listing import ListedModel
    from kinprint.sources.pace import Gate

T = TypeVar("T")
R = TypeVar("R")

PIECE_BYTES = CHUNK_BYTES  # smaller ones cost more to hand out, larger ones do not stay in the cache
_DISK_READERS = 8
_SHARE_BYTES = 8 << 20  # what a further thread must find to do: with less, waking it costs more than it takes over


@contextmanager
def running(
    options: Options, settings: Settings | None = None, session: Session | None = None, *, ledger: Ledger | None = None
) -> Iterator[Session]:
    """Give a session within the limits of `options`: the one that is handed in, which stays open, or one made for this run."""
    with (
        one_thread_for_products(),
        nullcontext(session) if session else Session(settings, ledger=ledger) as run,
        run.reading(options.budget_bytes, files=options.files, bases=options.bases),
    ):
        yield run


class Session(AbstractContextManager["Session"]):
    """Shared by all models of a run. Use as a context manager.

    The budget counts what is read, headers and tokenizers included, from wherever it comes: a cached second run has the same limit
    as the first, so both give the same report.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        budget_bytes: int | None = None,
        on_traffic: Callable[[Traffic], None] | None = None,  # called after every change, from any thread
        files: Sequence[str] = (),  # weight files to read in models that have one of these names, instead of choosing
        bases: Sequence[str] = (),  # models that adapters are merged into, instead of the declared; the first that fits
        ledger: Ledger | None = None,  # where to enter everything that is read; None for nowhere, at no cost
        gate: Gate | None = None,  # asked before every request, where several runs share what a host allows
    ) -> None:
        self.settings = settings or Settings.from_env()
        self.budget_bytes = budget_bytes
        self.files = tuple(files)
        self.files_found: set[str] = set()
        self.bases = tuple(bases)
        self.traffic = Traffic(on_traffic)
        self.memory = Recycler()
        self.bytes_delivered = 0  # of models, from wherever; what a retry read twice counts once
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._http: HttpClient | None = None
        self._gate = gate
        root = self.settings.range_cache
        self.cache = RangeCache(root, self.settings.range_cache_cap_bytes) if root else None
        self._pool = DaemonPool(self.settings.connections)
        self._coordinators = DaemonPool(8)
        self.ledger = ledger  # of what is opened from now on

    @contextmanager
    def recording(self, ledger: Ledger) -> Iterator[None]:
        """Enter what is opened inside this context in `ledger`: one comparison of many in a session."""
        before, self.ledger = self.ledger, ledger
        ledger.delivered_before = self.bytes_delivered
        try:
            yield
        finally:
            self.ledger = before

    @contextmanager
    def reading(
        self, budget_bytes: int | None, *, files: Sequence[str] = (), bases: Sequence[str] = ()
    ) -> Iterator[None]:
        """Read at most so many further bytes inside this context, these weight files and these bases of adapters.

        A session's own choices must not differ: a report states one set of them, and must not name the wrong one.
        """
        own = (self.budget_bytes, self.files, self.bases)
        limit = None if budget_bytes is None else self.bytes_delivered + budget_bytes
        chosen = (limit, tuple(files), tuple(bases))
        for name, mine, given in zip(("budget_bytes", "files", "bases"), own, chosen, strict=True):
            if mine not in (None, (), given):
                said = f"the session is limited to {name} {mine!r}, and {given!r} is asked for"
                raise BadSetting(said, hint="choose it in the options, and leave the session without")
        self.budget_bytes, self.files, self.bases = chosen
        try:
            yield
        finally:
            self.budget_bytes, self.files, self.bases = own

    def find(self, reference: str | ModelRef) -> ModelRef:
        """Return what a reference stands for: on this machine, on the hub, or on another server."""
        if not isinstance(reference, str):
            return reference
        said = reference.strip()
        what = quotable(said) if said.startswith(("http://", "https://")) else said  # an address may hold a secret
        return self.look_up(what, lambda: parse_ref(said, endpoint=self.settings.endpoint))

    def refuse_missing(self, references: Iterable[str]) -> None:
        """Refuse what names no model, or none of this machine, before anything is read; no server is asked."""
        for reference in references:
            parse_ref(reference, endpoint=self.settings.endpoint)

    def look_up(self, what: str, look: Callable[[], ModelRef]) -> ModelRef:
        """Find out what `what` stands for. What that depends on (files that exist) is entered in the ledger, if there is one."""
        return look() if self.ledger is None else self.ledger.look_up(what, look)

    def open_folder(self, reference: str | ModelRef) -> Folder:
        """Return the files of the model that `reference` names; a hub revision is pinned to a commit here."""
        ref = self.find(reference)
        return self._open(ref) if self.ledger is None else self.ledger.open(ref, self._open)

    @property
    def _client(self) -> HttpClient:
        """The client of this session; made, and its libraries loaded, when the first model that is not local is opened."""
        from kinprint.sources.http import HttpClient

        with self._lock:
            self._http = self._http or HttpClient(self.settings, self.traffic, self._stop, self._gate)
            return self._http

    def _open(self, ref: ModelRef) -> Folder:
        if ref.kind == "hub" and ref.repo is not None:
            from kinprint.sources.hub import HubFolder

            return HubFolder(ref.text, ref.repo, ref.revision, self._client, self.cache)
        if ref.kind == "url" and ref.url is not None:
            from kinprint.sources.web import WebFolder

            return WebFolder(ref.text, ref.url, self._client, self.cache)
        assert ref.path is not None
        root, only = (ref.path.parent, ref.path.name) if ref.kind == "file" else (ref.path, None)
        return LocalFolder(ref.text, root, self.traffic, only=only)

    def models_of(self, owner: str) -> list[ListedModel]:
        """Return all models that an organisation or user has on the hub, with their commits."""
        from kinprint.sources.listing import list_models

        return list_models(self._client, owner)

    def require_files(self, names: Sequence[str] | None = None) -> None:
        """Refuse a file that the user named and no model has: a misspelt name must not choose another file."""
        missing = [name for name in (self.files if names is None else names) if name not in self.files_found]
        if missing:
            said = f"no model here has a file called {missing[0]!r}"
            raise BadSelection(said, hint="see kinprint inspect for the files")

    @property
    def remaining_bytes(self) -> int | None:
        """Bytes that the budget still allows, or None without a budget."""
        return None if self.budget_bytes is None else max(0, self.budget_bytes - self.bytes_delivered)

    def on_a_guess(self, wish: int, least: int = 0) -> int:
        """Return how many bytes to read on a guess that they are needed: a tight budget must not be spent on guesses."""
        # The limit is a share of the whole budget, not of what is left just now: models are opened side by side, and what each
        # reads must not depend on which thread came first.
        return wish if self.budget_bytes is None else min(wish, max(self.budget_bytes // 32, least))

    def admit(self, count: int) -> None:
        """Take `count` bytes from the budget before they are read, or refuse."""
        with self._lock:
            if self.budget_bytes is not None and self.bytes_delivered + count > self.budget_bytes:
                raise self._over_budget(Text("a read of {size} was planned", size=format_size(count)))
            self.bytes_delivered += count
        self.traffic.add(expected_bytes=count)

    def require(self, source: Source, span: ByteRange) -> None:
        """Refuse a range that cannot be read, before memory is taken for it; here any range may be read."""

    def read_small(self, folder: Folder, name: str, cap: int = SMALL_FILE_CAP) -> bytes | None:
        """Return a whole small file within the budget, or None if the model has none."""
        left = self.remaining_bytes
        try:
            data = folder.read_small(name, cap if left is None else min(cap, left))
        except FileTooLarge as error:
            if left is not None and left < cap:
                raise self._over_budget(error.reason) from error
            raise
        self.admit(len(data or b""))
        return data

    def read_here(self, source: Source, span: ByteRange) -> memoryview:
        """Read one range in the calling thread."""
        self.require(source, span)
        self.admit(len(span))
        # Not a bytearray: it would be filled with zeros first, which takes as long as reading from the page cache.
        buffer = self.memory.take(len(span)).data
        source.read_into(span, buffer)
        return buffer

    def read(self, requests: Sequence[tuple[Source, ByteRange]]) -> list[memoryview]:
        """Read ranges of any number of files together, with bounded concurrency, into buffers."""
        for source, span in requests:
            self.require(source, span)
        self.admit(sum(len(span) for _, span in requests))
        sinks = [Buffer(self.memory.take(len(span)).data) for _, span in requests]
        self.read_through([(*request, sink, 0) for request, sink in zip(requests, sinks, strict=True)])
        return [sink.memory for sink in sinks]

    def read_through(self, requests: Sequence[Request]) -> None:
        """Read ranges of any number of files together, each into its sink. The caller has them admitted."""
        # What has to be waited for is left to the session's threads. What is at hand is read in pieces that fit into a
        # processor's cache with what a sink makes of them, by the calling thread and, where that is work, one on each core.
        for source, span, _, _ in requests:
            self.require(source, span)
        far = [request for request in requests if not request[0].at_hand]
        futures = [self._pool.submit(partial(_read_piece, *request, 0, len(request[1]))) for request in far]
        try:
            self._work_off([request for request in requests if request[0].at_hand])
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        self._results(futures)

    def _work_off(self, requests: Sequence[Request]) -> None:
        pieces = []
        for request in requests:  # what only has to be copied is one piece
            length = len(request[1])
            step = PIECE_BYTES if request[2].works else max(1, length)
            pieces += [(*request, at, min(length, at + step)) for at in range(0, length, step)]
        work = iter(enumerate(pieces))  # each thread takes the next
        failures: list[tuple[int, KinprintError]] = []

        def worker() -> None:
            for number, piece in work:
                try:
                    _read_piece(*piece)
                except KinprintError as error:
                    failures.append((number, error))
                    deque(work, maxlen=0)

        shared = sum(len(span) for _, span, sink, _ in requests if sink.works)
        # Two threads gain nothing on small reads, unless there are many and the disk can be asked for several at a time.
        threads = max(min(cores(), shared // _SHARE_BYTES), min(_DISK_READERS, len(requests) // 16))
        helpers = [self._pool.submit(worker) for _ in range(threads - 1)]
        try:
            worker()
        except BaseException:
            deque(work, maxlen=0)
            raise
        finally:
            for helper in [helper for helper in helpers if not helper.cancel()]:
                helper.result()
        if failures:
            raise min(failures, key=itemgetter(0))[1]

    def _over_budget(self, what: Text) -> BudgetExceeded:
        budget, left = format_size(self.budget_bytes or 0), format_size(self.remaining_bytes or 0)
        said = Text("{what}, but the budget of {budget} has only {left} left", what=what, budget=budget, left=left)
        return BudgetExceeded(said, hint="give a larger --budget")

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Apply `function` to all items at once; the first failure cancels what has not started and is raised."""
        return self._results([self._pool.submit(partial(function, item)) for item in items])

    def _results(self, futures: Sequence[Future[R]]) -> list[R]:
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:  # in order, so that the same failure is named each time
                if future in done and future.exception() is not None:
                    future.result()
            return [future.result() for future in futures]
        except BaseException as error:
            for future in futures:
                future.cancel()
            if isinstance(error, KeyboardInterrupt):
                self._stop.set()  # wakes threads that wait to retry
            raise

    def start(self, function: Callable[[], R]) -> Future[R]:
        """Run `function` in the background."""
        return self._pool.submit(function)

    def coordinate(self, function: Callable[[], R]) -> Future[R]:
        """Run in the background what itself waits for reads: among the readers it could hold the very threads it waits for."""
        return self._coordinators.submit(function)

    def ahead(self, fetch: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Yield what is fetched of each item; the next one is on its way while the caller works on this one."""
        coming: Future[R] | None = None
        for number, item in enumerate(items):
            current = coming.result() if coming else fetch(item)
            coming = self.coordinate(partial(fetch, items[number + 1])) if number + 1 < len(items) else None
            yield current

    def close(self) -> None:
        """Give back connections and threads, and keep the cache under its cap."""
        self._coordinators.close(wait=not self._stop.is_set())
        self._pool.close(wait=not self._stop.is_set())
        if self._http is not None:
            self._http.close()
        if self.cache is not None:
            self.cache.settle()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stop.set()
        self.close()


def _read_piece(source: Source, span: ByteRange, sink: Sink, first: int, at: int, end: int) -> None:
    room = sink.room(first + at, end - at)
    source.read_into(ByteRange(span.start + at, span.start + end), room)
    sink.filled(first + at, room)
