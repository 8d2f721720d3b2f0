"""Run one test or search of many so that what it trips over ends that test alone, and is said."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from kinprint._util.cores import aside, take_turns
from kinprint._util.plain import printable
from kinprint._util.records import dataclass
from kinprint.errors import KinprintError
from kinprint.results.plain_json import between_forks
from kinprint.text import Text

T = TypeVar("T")
_noted: ContextVar[list[Text] | None] = ContextVar("noted", default=None)
strict = False  # whether errors pass: so in the project's own tests, where no bug may hide behind a reason


def _broken(why: str) -> Text:
    return Text("this test could not run, because of an unexpected error ({why})", why=why)


def is_broken(reason: Text | None) -> bool:
    """Whether a test is off because of an unexpected error, and not because an assumption fails."""
    return reason is not None and reason.key == _broken("").key


def attempt(run: Callable[[], T], otherwise: Callable[[Text], T]) -> T:
    """Return what `run` returns; after an unexpected error, what `otherwise` makes of the reason, which may claim nothing."""
    # Suspects are made by those who have something to hide, and one odd matrix must not end the comparison. What is raised on
    # purpose (a budget, a broken connection, an assumption that fails) is the caller's.
    take_turns()
    try:
        return run()
    except KinprintError:
        raise
    except Exception as error:
        if strict:
            raise
        why = printable(f"{type(error).__name__}: {error}", 160)
        said = _broken(why)
        note([said])
        return otherwise(said)


def note(broken: Iterable[Text]) -> None:
    """Add to what is collected of tests that could not run."""
    if (noted := _noted.get()) is not None:
        noted += [said for said in broken if said not in noted]


@contextmanager
def noting() -> Iterator[list[Text]]:
    """Collect why tests could not run: what the others show is no ground to conclude by elimination."""
    noted: list[Text] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


@dataclass(frozen=True)
class _Broken:
    """What was noted in a fork."""

    reasons: tuple[Text, ...]


_LENGTH = 8  # bytes that say how long that is


def beside(work: Callable[[], T], kind: type[T]) -> Callable[[], T]:
    """Begin work of which parts may break in a fork, as `aside` does; what broke is noted where the answer is waited for."""
    (write, read), (write_broken, read_broken) = between_forks(kind), between_forks(_Broken)

    def told() -> tuple[T, _Broken]:
        with noting() as broken:
            found = work()
        return found, _Broken(tuple(broken))

    def written(answer: tuple[T, _Broken]) -> bytes:
        broken = write_broken(answer[1])
        return len(broken).to_bytes(_LENGTH) + broken + write(answer[0])

    def taken(raw: bytes) -> tuple[T, _Broken]:
        end = _LENGTH + int.from_bytes(raw[:_LENGTH])
        return read(raw[end:]), read_broken(raw[_LENGTH:end])

    waited = aside(told, written, taken)

    def answer() -> T:
        found, broken = waited()
        note(broken.reasons)
        return found

    return answer
