"""Make synthetic byte-level BPE tokenizers for Solar and GLM with the published overlap, offsets and merge counts.

Solar keeps 4,096 reserved tokens, then the 256 bytes, then one token for each merge (4,096 + 256 + 192,256 = 196,608). GLM has
the bytes first and lists, as a conversion from a rank file does, several merges for one token. Words are invented: letters
alternate between consonants and vowels, so pieces of words are tokens too and a word can be split in several ways.
Core tokens (short pieces, both models have all of them) come before words, so the parts of a merge always exist before it.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinprint.lab.replicas.published_figures import published

Ints = NDArray[np.int64]

CLOSE = 100  # ids that differ by so much or less were counted as close
SHIFT = 4096
BYTES = 256
ENGLISH = 200  # first common tokens: what the first embedding experiment takes, in either model's order
WORDS = 300  # then three-letter words: what the second one takes
HIGH_ID = 150_000

_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
_MARKS = "._-/:(\"'=#"
# Correlation of the words' ranks. Short tokens come first in both models, which alone would correlate the ids of common tokens
# with 0.55; this brings it to the published 0.453.
_RANK_CORRELATION = -0.13

# Words of each kind: in both models, in Solar alone, in GLM alone. None: whatever completes the published count.
_MIX: dict[str, tuple[int | None, int | None, int | None]] = {
    "spaced": (None, None, None),
    "alpha": (18_000, 16_000, 30_000),
    "capital": (4_000, 6_000, 4_000),
    "mark": (4_000, 9_000, 5_000),
    "digits": (0, 9, 0),
    "hangul": (1_500, 22_000, 500),
    "spaced hangul": (500, 18_000, 0),
    "han": (6_000, 3_000, 8_000),
}


@dataclass(frozen=True)
class TokenizerPair:
    """Both tokenizers as parsed tokenizer.json."""

    solar: dict[str, Any]
    glm: dict[str, Any]


@dataclass(frozen=True)
class _Core:
    """Tokens that both models have, in groups whose parts lie in earlier ones, and each model's order of them."""

    solar: tuple[str, ...]
    glm: tuple[str, ...]
    glm_splits: list[list[str]]


@cache
def _spelling() -> dict[int, str]:
    """Return the character that stands for each of the 256 bytes, in the usual order: printable ones, then the rest."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [value for value in range(BYTES) if value not in set(printable)]
    return {value: chr(value) for value in printable} | {value: chr(BYTES + at) for at, value in enumerate(rest)}


def byte_alphabet() -> tuple[str, ...]:
    """Return the characters that stand for the 256 bytes, in the usual order."""
    return tuple(_spelling().values())


def _spelt(text: str) -> str:
    return "".join(_spelling()[value] for value in text.encode())


SPACE = "\u0120"  # how the byte 0x20 is spelt
_RUNS = (SPACE * 2, SPACE * 3, SPACE * 4)
_HANGUL = tuple(_spelt(chr(0xAC00 + 14 * number)) for number in range(798))
_HAN = tuple(_spelt(chr(0x4E00 + 13 * number)) for number in range(1_600))


def _alternating(length: int) -> list[str]:
    """Return all words that alternate and begin with a consonant or, if shorter than four letters, with a vowel."""
    starts = ((_CONSONANTS, _VOWELS), (_VOWELS, _CONSONANTS))[: 2 if length < 4 else 1]
    return ["".join(word) for one, two in starts for word in product(*((one, two)[at % 2] for at in range(length)))]


def _groups(rng: np.random.Generator) -> list[list[str]]:
    """Return the core, group by group: 200 short English tokens, 300 words, pieces of two, three and four letters."""
    pairs, triples = _alternating(2), _alternating(3)
    rng.shuffle(pairs)
    letters = [SPACE + letter for letter in _CONSONANTS + _VOWELS]
    early = pairs[: ENGLISH - len(_RUNS) - len(letters)]
    known = set(early)
    rng.shuffle(triples)
    words = [word for word in triples if word[:2] in known][:WORDS]
    chosen = set(words)
    digits = ["".join(number) for number in product("0123456789", repeat=2)]
    prefixes = sorted({word[:2] for word in (*_HANGUL, *_HAN)})
    second = [*pairs[len(early) :], *(SPACE + pair for pair in pairs), *(pair.capitalize() for pair in pairs)]
    second += [*digits, *prefixes, *("".join(marks) for marks in product(_MARKS, repeat=2))]
    third = [word for word in triples if word not in chosen]
    third += [*("".join(number) for number in product("0123456789", repeat=3)), *_HANGUL, *_HAN]
    fourth = [*_alternating(4), *(SPACE + word for word in triples), *(SPACE + syllable for syllable in _HANGUL)]
    return [[*_RUNS, *early, *letters], words, second, third, fourth]


def _is_word(token: str) -> bool:
    return token.isascii() and token.isalpha()


def _planted(group: Sequence[str], words: int, spaced: int) -> list[int]:
    """Return places in a group whose token is to keep the dominant shift: so many ASCII words, so many after a space."""
    plain = [at for at, token in enumerate(group) if _is_word(token)][:words]
    return plain + [at for at, token in enumerate(group) if token[0] == SPACE and _is_word(token[1:])][:spaced]


def _order(rng: np.random.Generator, first: int, fixed: Sequence[int], merges: tuple[Ints, Ints]) -> Ints:
    """Return a random order for Solar of a group that starts at place `first` of the core, as places in GLM's order.

    The places `fixed`, and no others, keep the dominant shift; no id comes close to GLM's; and no merge stands where GLM's list
    (``merges``: for each token, index of the first one and how many) has one of the same token.
    """
    start, count = merges
    places = np.setdiff1d(np.arange(len(start)), np.asarray(fixed, dtype=np.int64))
    moved = rng.permutation(places)
    while True:
        behind = first + places - start[moved]
        wrong = (moved == places) | (np.abs(SHIFT + places - moved) <= CLOSE)
        wrong |= (behind >= 0) & (behind < count[moved])
        wrong |= (moved < len(_RUNS)) & (places < 2 * len(_RUNS))  # so that the runs of spaces can be put in order
        if not wrong.any():
            break
        for one in np.flatnonzero(wrong).tolist():
            two = int(rng.integers(len(moved)))
            moved[[one, two]] = moved[[two, one]]
    order = np.arange(len(start))
    order[places] = moved
    return order


@cache
def _core(seed: int) -> _Core:
    rng = np.random.default_rng([seed, 0x70C])
    groups = []
    for level, group in enumerate(_groups(rng)):
        head = len(_RUNS) if level == 0 else 0  # they come first in GLM
        groups.append(group[:head] + [group[head + at] for at in rng.permutation(len(group) - head).tolist()])
    glm = list(chain.from_iterable(groups))
    splits = _growing_splits(glm)
    count = np.array([len(options) for options in splits])
    start = np.cumsum(count) - count
    # Six tokens beyond the bytes keep the dominant shift: four early ones, two late; three are ASCII.
    plants = {0: (2, 2), 4: (1, 1)}
    solar: list[str] = []
    for level, group in enumerate(groups):
        fixed = _planted(group, *plants.get(level, (0, 0)))
        here = slice(len(solar), len(solar) + len(group))
        solar += [group[at] for at in _order(rng, len(solar), fixed, (start[here], count[here])).tolist()]
    for at, token in zip(sorted(solar.index(run) for run in _RUNS), _RUNS, strict=True):
        solar[at] = token  # a longer run is made from shorter ones
    return _Core(tuple(solar), tuple(glm), splits)


def _growing_splits(tokens: Iterable[str]) -> list[list[str]]:
    """Return every token's splits into bytes and tokens before it, the most even first."""
    known = set(byte_alphabet())
    found = []
    for token in tokens:
        found.append(_splits(token, known))
        known.add(token)
    return found


def first_tokens(seed: int = 0) -> tuple[Ints, Ints]:
    """Return ids (Solar, GLM) of the 200 lowest common English tokens and of the 300 lowest ASCII words."""
    core = _core(seed)
    place = {token: SHIFT + BYTES + at for at, token in enumerate(core.solar[: ENGLISH + WORDS])}
    ids = np.array([(place[token], BYTES + at) for at, token in enumerate(core.glm[: ENGLISH + WORDS])])
    return ids[:ENGLISH], ids[ENGLISH:]


def _draw(rng: np.random.Generator, kind: str, count: int) -> list[str]:
    """Return so many different words of a kind."""
    if kind in ("alpha", "capital", "spaced"):
        words = _latin(rng, count)
        if kind == "capital":
            return [word.capitalize() for word in words]
        return [SPACE + word for word in words] if kind == "spaced" else words
    parts: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "mark": (_MARKS, _alternating(4)),
        "digits": (["20"], [f"{number:02d}" for number in range(100)]),
        "han": (_HAN, _HAN),
        "hangul": (_HANGUL, _HANGUL),
        "spaced hangul": ([SPACE + one for one in _HANGUL], _HANGUL),
    }
    first, second = parts[kind]
    chosen = rng.choice(len(first) * len(second), count, replace=False)
    return [first[at // len(second)] + second[at % len(second)] for at in chosen.tolist()]


def _latin(rng: np.random.Generator, count: int) -> list[str]:
    """Return words of five and six letters. A number is written in mixed radix: no list of all words is needed."""
    found: list[str] = []
    for length, wanted in ((5, count // 2), (6, count - count // 2)):
        radices = [len(_CONSONANTS if place % 2 == 0 else _VOWELS) for place in range(length)]
        codes = rng.choice(int(np.prod(radices)), wanted, replace=False)
        letters = []
        for place, radix in enumerate(radices):
            source = np.array(list(_CONSONANTS if place % 2 == 0 else _VOWELS))
            letters.append(source[codes % radix])
            codes = codes // radix
        found += ["".join(word) for word in zip(*(column.tolist() for column in letters), strict=True)]
    return found


@dataclass(frozen=True)
class _Leaves:
    """Words: `common` first, then each model's own; `kinds` names the kind of every one."""

    words: list[str]
    kinds: NDArray[np.str_]
    owner: Ints  # 0 both, 1 Solar, 2 GLM


def _leaves(rng: np.random.Generator, core: int, counts: tuple[int, int, int]) -> _Leaves:
    wanted = [counts[0] - core, counts[1], counts[2]]
    words: list[str] = []
    kinds: list[str] = []
    owner: list[int] = []
    for kind, numbers in _MIX.items():
        sizes = [
            number if number is not None else wanted[side] - sum(row[side] or 0 for row in _MIX.values())
            for side, number in enumerate(numbers)
        ]
        words += _draw(rng, kind, sum(sizes))
        kinds += [kind] * sum(sizes)
        owner += rng.permutation(np.repeat(np.arange(3), sizes)).tolist()
    return _Leaves(words, np.array(kinds), np.array(owner))


def _solar_order(rng: np.random.Generator, leaves: _Leaves, first: int, priority: NDArray[np.float64]) -> Ints:
    """Order Solar's words by priority, except that ids from 150,000 hold the published numbers of each script class."""
    types = published()["origin"]["vocab_mapping_text"]["high_id_types"]
    high = published()["origin"]["vocab_mapping_text"]["high_id_ge_150000"]
    mine = np.flatnonzero(leaves.owner != 2)
    mine = mine[np.argsort(priority[mine])]
    kinds = leaves.kinds[mine]
    classes = [
        (("alpha", "capital"), types["ascii_alpha"]),
        (("mark",), types["ascii_other"]),
        (("hangul", "spaced hangul", "han"), types["other"]),
        (("digits",), high - sum(types.values())),  # nine are in none of the published classes
    ]
    late = np.zeros(len(mine), dtype=bool)
    for names, count in classes:
        late[np.flatnonzero(np.isin(kinds, names))[-count:]] = True
    if first + len(mine) - int(late.sum()) != HIGH_ID:
        raise AssertionError("Solar's words do not begin their last part at id 150,000")
    return np.concatenate([mine[~late], rng.permutation(mine[late])])


def _match(rng: np.random.Generator, solar: Ints, glm: Ints, common: Ints, start: tuple[int, int]) -> None:
    """Exchange words in GLM's order, in place, until the published numbers of equal and close ids hold."""
    close = published()["origin"]["tokenizer_expansion"]["b_tokens_same_or_close_id"]
    same = published()["origin"]["tokenizer_compare"]["same_id_exact_matches"]["matches"]
    rank_a, rank_b = np.full((2, int(max(solar.max(), glm.max())) + 1), -1, dtype=np.int64)
    rank_a[solar], rank_b[glm] = np.arange(len(solar)), np.arange(len(glm))
    gap = start[0] - start[1]

    def exchange(one: int, two: int) -> None:
        at, to = rank_b[one], rank_b[two]
        glm[[at, to]] = two, one
        rank_b[[one, two]] = to, at

    def wrong(shift: Ints) -> NDArray[np.bool_]:
        return np.asarray((np.abs(shift) <= CLOSE) | (shift == SHIFT))

    planted: list[int] = []
    for token in rng.permutation(common).tolist():
        if len(planted) == close:
            break
        away = 0 if len(planted) < same else int(rng.integers(1, CLOSE)) * int(rng.choice((-1, 1)))
        target = int(rank_a[token]) + gap - away
        if 0 <= target < len(glm) and int(glm[target]) not in planted:
            exchange(token, int(glm[target]))
            planted.append(token)
    kept = np.setdiff1d(common, planted)
    for _ in range(100):
        bad = kept[wrong(rank_a[kept] - rank_b[kept] + gap)]
        if not len(bad):
            return
        for token in bad.tolist():
            exchange(token, int(kept[rng.integers(len(kept))]))
    raise AssertionError("ids could not be matched")


@cache
def _cuts(length: int) -> tuple[int, ...]:
    """Return the places where a word can be cut, the middle first."""
    return tuple(sorted(range(1, length), key=lambda place: (abs(2 * place - length), place)))


def _splits(token: str, parts: AbstractSet[str]) -> list[str]:
    cuts = _cuts(len(token))
    return [f"{token[:at]} {token[at:]}" for at in cuts if token[:at] in parts and token[at:] in parts]


def _glm_merges(
    rng: np.random.Generator, tokens: Sequence[str], options: list[list[str]], solar: dict[str, str], first_word: int
) -> list[str]:
    """List GLM's merges: all splits of each token (`options`), less what brings the published totals about."""
    deep = published()["origin"]["tokenizer_deep"]
    agreeing = [at for at, token in enumerate(tokens) if token in solar and solar[token] in options[at]]
    several = [at for at in agreeing if at >= first_word and len(options[at]) > 1]
    for number in rng.choice(len(several), len(agreeing) - deep["merges_common"], replace=False).tolist():
        at = several[number]
        options[at].remove(solar[tokens[at]])
    surplus = sum(map(len, options)) - deep["merges_len_B"]
    spare = [
        (at, split) for at in range(first_word, len(tokens)) for split in _spare(options[at], solar.get(tokens[at]))
    ]
    for number in rng.choice(len(spare), surplus, replace=False).tolist():
        at, split = spare[number]
        options[at].remove(split)
    return list(chain.from_iterable(options))


def _spare(options: Sequence[str], needed: str | None) -> Sequence[str]:
    """Return the splits that may go: never the one that Solar has too, and never the last one."""
    keep = needed if needed in options else options[0]
    return [split for split in options if split != keep]


def make_tokenizers(seed: int = 0) -> TokenizerPair:
    """Return both tokenizers. INTELLECT-3 uses GLM's."""
    rng = np.random.default_rng([seed, 0x70D])
    deep = published()["origin"]["tokenizer_deep"]
    core = _core(seed)
    shared = deep["common_tokens"] - BYTES
    own = deep["vocab_size_A"] - SHIFT - BYTES - shared, deep["vocab_size_B"] - BYTES - shared
    leaves = _leaves(rng, len(core.solar), (shared, *own))
    priority_a, fresh = rng.standard_normal((2, len(leaves.words)))
    priority_b = _RANK_CORRELATION * priority_a + (1 - _RANK_CORRELATION**2) ** 0.5 * fresh
    start = SHIFT + BYTES + len(core.solar), BYTES + len(core.glm)
    solar = _solar_order(rng, leaves, start[0], priority_a)
    glm = np.flatnonzero(leaves.owner != 1)
    glm = glm[np.argsort(priority_b[glm])]
    _match(rng, solar, glm, np.flatnonzero(leaves.owner == 0), start)
    parts = frozenset((*byte_alphabet(), *core.glm))
    merges = {token: options[0] for token, options in zip(core.solar, _growing_splits(core.solar), strict=True)}
    merges |= {word: _splits(word, parts)[0] for word in (leaves.words[at] for at in solar.tolist())}
    words_b = [leaves.words[at] for at in glm.tolist()]
    tokens_b = [*core.glm, *words_b]
    options = [*(list(found) for found in core.glm_splits), *(_splits(word, parts) for word in words_b)]
    listed = _glm_merges(rng, tokens_b, options, merges, len(core.glm))
    reserved = _reserved()
    return TokenizerPair(
        _document([*reserved, *byte_alphabet(), *merges], list(merges.values()), reserved),
        _document([*byte_alphabet(), *tokens_b], listed, ()),
    )


def _reserved() -> list[str]:
    named = ["<unk>", "<s>", "</s>", "<|begin|>", "<|end|>", "<|content|>", "<|think|>", "<|im_start|>", "<|im_end|>"]
    return named + [f"<|reserved_{number}|>" for number in range(len(named), SHIFT)]


def _document(tokens: Sequence[str], merges: list[str], special: Iterable[str]) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding")),
        "added_tokens": [{"id": number, "content": token, **flags} for number, token in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": merges,
        },
    }
