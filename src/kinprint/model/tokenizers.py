"""Compare the tokenizers of two models, from tokenizer.json: context for a reader, never evidence of derivation."""

from collections.abc import Mapping, Sequence

from kinprint._util.records import dataclass
from kinprint.errors import AccessDenied, BudgetExceeded, FileTooLarge, FormatError, NotFound, OfflineError
from kinprint.model.model import Model
from kinprint.model.tokens import TOKENIZER_FILE, vocabulary
from kinprint.results.measurements import NOT_COMPARABLE, OK
from kinprint.results.models import TokenizerDifference
from kinprint.sources.base import SMALL_FILE_CAP
from kinprint.text import Text

TokenPairs = tuple[tuple[int, int], ...]  # ids of the same token in A and in B


def compare_tokenizers(a: Model, b: Model, *, share: float) -> tuple[TokenizerDifference, TokenPairs | None]:
    """Compare vocabularies and merges by text and id. At most `share` of the bytes left in the budget is spent on it.

    Tokens are compared as the files spell them. Equal files (by the hub's content tag) are not read at all. Beside the
    differences come the ids of all tokens that both have, in A's order; None where that is not known.
    """
    found = _tokenizers(a, b, share=share)
    if isinstance(found, TokenizerDifference):
        return found, None
    one, two = found
    vocab_a, vocab_b = vocabulary(one), vocabulary(two)
    common = sorted((number, vocab_b[token]) for token, number in vocab_a.items() if token in vocab_b)
    return compare_vocabularies(one, two), tuple(common)


def _tokenizers(
    a: Model, b: Model, *, share: float
) -> tuple[dict[str, object], dict[str, object]] | TokenizerDifference:
    """Return both files parsed, or what can be said without them."""
    session, models = a.checkpoint.session, (a, b)
    found = session.map(_look_up, models)
    if (reason := _lacking(found)) is not None:
        return TokenizerDifference(NOT_COMPARABLE, reason)
    files = [file for file in found if isinstance(file, _File)]
    if files[0].content is not None and files[0] == files[1]:
        unread = Text("the files have the same content tag and were not read")
        return TokenizerDifference(OK, unread, identical_files=True)
    left, needed = session.remaining_bytes, sum(file.size for file in files)
    if left is not None and needed > left * share:
        x = {"needed": needed, "share": share, "left": left}
        reason = Text("the two files have {needed} bytes, more than {share:.0%} of the budget left ({left} bytes)", **x)
        return TokenizerDifference(NOT_COMPARABLE, reason)
    parsed = session.map(_read, list(zip(models, files, strict=True)))
    if (reason := _lacking(parsed)) is not None:
        return TokenizerDifference(NOT_COMPARABLE, reason)
    one, two = (content for content in parsed if isinstance(content, dict))
    return one, two


def _lacking(found: Sequence[object]) -> Text | None:
    """Return why the first side that lacks its file does; a `Text` stands for a file that cannot be had, None for no file."""
    for side, item in zip("AB", found, strict=True):
        if item is None or isinstance(item, Text):
            return item or Text("model {side} has no {file}", side=side, file=TOKENIZER_FILE)
    return None


@dataclass(frozen=True, slots=True)
class _File:
    """Size of a tokenizer.json, and ``content``, the hub's tag if there is one, known without reading the file."""

    size: int
    content: str | None


def _look_up(model: Model) -> _File | Text | None:
    """Return size and tag, or why they cannot be had, or None if the model has no such file."""
    checkpoint = model.checkpoint
    if TOKENIZER_FILE in checkpoint.documents:  # came with the header, which has been read
        return _File(0, None)
    try:
        source = checkpoint.folder.open(TOKENIZER_FILE)
        # Tags of a plain web server tell versions of one address apart, and nothing about another's files.
        by_tag = checkpoint.provenance.kind == "hub" and source.identity.startswith("etag:")
        return _File(source.size, source.identity if by_tag else None)
    except NotFound:
        return None
    except (AccessDenied, OfflineError) as error:  # a bucket answers 403 for what it does not have
        return error.reason


def _read(job: tuple[Model, _File]) -> dict[str, object] | Text | None:
    """Return the parsed file, or why it cannot be had. Both sides are read at once, so neither may exceed its size."""
    model, file = job
    try:
        return model.checkpoint.read_json(TOKENIZER_FILE, cap=min(SMALL_FILE_CAP, file.size))
    except (BudgetExceeded, FileTooLarge, FormatError, OfflineError) as error:
        return error.reason


def compare_vocabularies(a: Mapping[str, object], b: Mapping[str, object]) -> TokenizerDifference:
    """Compare two parsed tokenizer.json."""
    vocab_a, vocab_b = vocabulary(a), vocabulary(b)
    if not vocab_a or not vocab_b:
        side = "A" if not vocab_a else "B"
        return TokenizerDifference(NOT_COMPARABLE, Text("the tokenizer of model {side} lists no vocabulary", side=side))
    common = vocab_a.keys() & vocab_b.keys()
    merges_a, merges_b = _merges(a), _merges(b)
    merges = {}
    if merges_a is not None and merges_b is not None:
        merges = {"merges_a": len(merges_a), "merges_b": len(merges_b), "merges_common": len(merges_a & merges_b)}
    return TokenizerDifference(
        OK,
        None,
        identical_files=a == b,
        kind_a=_kind(a),
        kind_b=_kind(b),
        tokens_a=len(vocab_a),
        tokens_b=len(vocab_b),
        tokens_common=len(common),
        jaccard=len(common) / (len(vocab_a) + len(vocab_b) - len(common)),
        same_id=sum(vocab_a[token] == vocab_b[token] for token in common),
        **merges,
    )


def _merges(tokenizer: Mapping[str, object]) -> set[str] | None:
    model = tokenizer.get("model")
    listed = model.get("merges") if isinstance(model, dict) else None
    if not isinstance(listed, list):
        return None
    # Both spellings are in use: "left right" and ["left", "right"].
    return {" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in listed}


def _kind(tokenizer: Mapping[str, object]) -> str | None:
    model = tokenizer.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    return kind[:40] if isinstance(kind, str) else None
