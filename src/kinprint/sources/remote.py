"""Read a remote file by range. The first read finds where the bytes are; later reads go there directly."""

import re
import threading
from collections.abc import Callable
from functools import partial

from kinprint.errors import SourceChanged, SourceError, TransferError
from kinprint.refs import ByteRange
from kinprint.sources import http
from kinprint.sources.http_connection import Response

_CONTENT_RANGE = re.compile(r"^bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)$")
_FIRST = ByteRange(0, 1)  # asked for to learn about a file
_UNSATISFIED = re.compile(r"^bytes \*/([0-9]{1,19})$")


class RemoteFile:
    """One file behind a URL, possibly behind a redirect to another host (a hub's CDN)."""

    # The redirect's target is kept, and asked for anew when it refuses (signed links expire). What could tell two versions
    # apart is compared on every reply: entity tag, total size, and the hub's linked tag and commit.
    at_hand = False

    def __init__(
        self,
        client: http.HttpClient,
        url: str,
        label: str,
        *,
        commit: str | None = None,
        on_target: Callable[[str, str], None]
        | None = None,  # told the address and where it leads, when that is looked up
    ) -> None:
        self.client, self.label = client, label
        self._url, self._commit, self._on_target = url, commit, on_target
        self._lock = threading.Lock()  # replies of several threads are compared with one record
        self._target: str | None = None
        self._size: int | None = None
        self._linked_tag: str | None = None  # the hub's own tag for the content: stable whichever CDN serves it
        self._reply_tag: str | None = None  # the tag on the ranged replies themselves
        self._weak = False  # whether a tag came marked as weak: equal tags then do not promise equal bytes
        self._answered = False  # whether a ranged reply has come, with a tag or without

    @property
    def size(self) -> int:
        """Length in bytes; costs one exchange if no reply has told it yet."""
        if self._size is None:
            self.prefetch()
        if self._size is None:  # redirected without a linked size: only the target can tell
            self._probe()
        if self._size is None:
            said = f"{self.label}: the server does not say how long the file is"
            raise TransferError(said, hint="download the file and give its path")
        return self._size

    @property
    def identity(self) -> str:
        """The entity tag that stands for the content, else the size."""
        if not self.has_tag:
            self.prefetch()
        if not self.has_tag and not self._answered:  # else it would change with the first read
            self._probe()
        tag = self._linked_tag or self._reply_tag
        return f"etag:{tag}" if tag else f"size:{self.size}"

    @property
    def has_tag(self) -> bool:
        """Whether a reply has told an entity tag, weak or strong."""
        return bool(self._linked_tag or self._reply_tag)

    @property
    def has_strong_identity(self) -> bool:
        """Whether the server gave anything that would change with any byte of the content."""
        return self.has_tag and not self._weak

    @property
    def is_known(self) -> bool:
        """Whether size and tag are known without asking for them."""
        return self._size is not None and self.has_tag

    def prefetch(self) -> None:
        """Resolve the redirect, if there is one, without asking its target for anything."""
        if self._target is None and self._size is None:
            self.client.retrying(self.label, self._resolve)

    def read_into(self, span: ByteRange, buffer: memoryview) -> None:
        """Fill `buffer` with `span`, or raise; nothing short, nothing mixed."""
        if len(span) == 0:
            return
        self.client.retrying(self.label, lambda: self._exchange(span, buffer))

    def _probe(self) -> None:
        self.client.retrying(self.label, lambda: self._exchange(_FIRST, None))

    def _resolve(self) -> None:
        reply = self.client.send(self._url, begun_at=self._url, span=_FIRST)
        if http.is_redirect(reply):
            self._learn_from_redirect(reply)
            self._target = self.client.next_hop(self._url, reply, 1, self.label)
            if self._on_target is not None:
                self._on_target(self._url, self._target)
        else:
            self._accept(reply, _FIRST, None, self._url)

    def _exchange(self, span: ByteRange, buffer: memoryview | None) -> None:
        target = self._target
        follow = partial(
            self.client.follow, label=self.label, learn=self._learn_from_redirect, begun_at=self._url, span=span
        )
        reply, address = follow(target or self._url)
        if reply.status in (401, 403) and target is not None:
            # The kept target is a signed link that has run out: ask the origin for a fresh one, once.
            http.spend(reply)
            with self._lock:
                self._target = None
                if self._linked_tag:  # another mirror may tag its replies differently; the hub's tag still ties them
                    self._reply_tag = None
            reply, address = follow(self._url)
        self._accept(reply, span, buffer, address)
        self._target = address

    def _accept(self, reply: Response, span: ByteRange, buffer: memoryview | None, address: str) -> None:
        """Check a ranged reply from an address and take its body. Anything off is an error before a byte is believed."""
        label = self.label
        if reply.status == 416:
            self._unsatisfied(reply, span, probing=buffer is None)
            return
        if reply.status == 200:
            reply.close()
            said = f"{label}: the server sent the whole file (HTTP 200) instead of bytes {span.start}-{span.end - 1}"
            raise TransferError(said, hint="this server does not serve ranges; download the file and give its path")
        if reply.status != 206:
            raise http.status_error(reply, label=label, has_token=bool(self.client.settings.token))
        try:
            self._check_range(reply, span)
            self._learn("reply tag", reply.headers.get("ETag"))
            self._answered = True
        except SourceError:
            reply.close()
            raise
        if buffer is None:
            http.spend(reply)
            return
        filled = 0
        began = self.client.clock()
        while filled < len(span):
            chunk = http.read_some(reply, min(len(span) - filled, 1 << 20))
            if not chunk:
                reply.close()
                raise http.TryAgain(f"the body ended after {filled} of {len(span)} bytes")
            buffer[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            self.client.traffic.add(network_bytes=len(chunk))
            if filled < len(span):
                self.client.check_pace(reply, began, filled, len(chunk))
        self.client.refuse_echo(label, address, buffer[: len(span)])
        if http.content_length(reply) is not None and "Transfer-Encoding" not in reply.headers:
            http.drain(reply)
            return
        surplus = http.read_some(reply, 1)  # of undeclared length, so possibly without end
        reply.close()
        if surplus:
            raise TransferError(f"{label}: asked for {len(span)} bytes, the server sends more")

    def _check_range(self, reply: Response, span: ByteRange) -> None:
        stated = reply.headers.get("Content-Range", "")
        match = _CONTENT_RANGE.match(stated)
        encoding = reply.headers.get("Content-Encoding", "identity").lower()
        if encoding != "identity":
            what = f"encoded as {encoding[:40]!r}; expected plain bytes"
            raise TransferError(f"{self.label}: a ranged reply came {what}")
        if not match:
            raise TransferError(f"{self.label}: HTTP 206 with Content-Range {stated[:80]!r}; expected bytes a-b/size")
        if (int(match[1]), int(match[2]) + 1) != (span.start, span.end):
            asked = f"asked for bytes {span.start}-{span.end - 1}"
            raise TransferError(f"{self.label}: {asked}, got Content-Range {stated[:80]!r}")
        length = http.content_length(reply)
        if length is not None and length != len(span):
            raise TransferError(f"{self.label}: asked for {len(span)} bytes, the reply declares {length}")
        if match[3] != "*":
            self._learn_size(int(match[3]))

    def _unsatisfied(self, reply: Response, span: ByteRange, *, probing: bool) -> None:
        match = _UNSATISFIED.match(reply.headers.get("Content-Range", ""))
        http.spend(reply)
        if probing and match:  # an empty file cannot answer even one byte
            self._learn_size(int(match[1]))
            return
        size = f"; the server says the file has {match[1]} bytes" if match else ""
        raise TransferError(f"{self.label}: no bytes {span.start}-{span.end - 1} (HTTP 416){size}")

    def _learn_from_redirect(self, reply: Response) -> None:
        headers = reply.headers
        commit = headers.get("X-Repo-Commit")
        size = http.whole_number(headers.get("X-Linked-Size", ""))
        if self._commit and commit and commit != self._commit:
            reply.close()
            said = f"{self.label}: asked for commit {self._commit}, the server answers with {commit[:64]!r}"
            raise SourceChanged(said)
        try:
            self._learn("linked tag", headers.get("X-Linked-ETag"))
            if size is not None:
                self._learn_size(size)
        except SourceChanged:
            reply.close()
            raise

    def _learn_size(self, size: int) -> None:
        with self._lock:
            known = self._size
            self._size = size if known is None else known
        if known not in (None, size):
            raise SourceChanged(f"{self.label}: was {known} bytes, is now {size} bytes", hint="run it again")

    def _learn(self, which: str, tag: str | None) -> None:
        if not tag:
            return
        weak, tag = tag.startswith("W/"), http.plain_tag(tag)
        attribute = "_linked_tag" if which == "linked tag" else "_reply_tag"
        with self._lock:
            known = getattr(self, attribute) or tag
            setattr(self, attribute, known)
            self._weak = self._weak or weak
        if known != tag:
            said = f"{self.label}: the file changed while it was read ({which} {known[:70]!r}, then {tag[:70]!r})"
            raise SourceChanged(said, hint="run it again; nothing read so far has been mixed")
