"""Read pickles without running them: a small stack machine that makes plain descriptions.

A pickle is a program. Python's own reader imports whatever it names and calls it; the machine here knows a table of
instructions, whose arguments `pickletools` parses, and a vocabulary of names, each of which stands for a function of this package
that makes a description. Nothing is looked up in any module. A name or an instruction outside the tables is refused by name.

Memory is charged for as values are made, so that a short program cannot make large ones, and keys of dictionaries are
plain, so that no value is hashed or compared in depth. Protocols 2 to 5 are read (PEP 307, PEP 3154, PEP 574).
"""

import io
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kinprint.errors import FormatError

PICKLE_CAP = 16 << 20  # 18,000 tensors take 2 MB
MEMORY_CAP = 40 << 20  # beside the pickle's own length
INSTRUCTION_CAP = 2_000_000  # 18,000 tensors take 0.6 million; these take a few seconds
_DEEPEST = 1000  # open marks; a state dict needs about six
_LONGEST_INT = 16
_NO_CODE = "nothing of it was run; fetch the weights as safetensors, or from a source you trust"


class Refusal(ValueError):
    """Arguments that a function of the vocabulary does not take; the reader adds the place in the pickle."""


@dataclass(frozen=True, eq=False, slots=True)
class Global:
    """A name from the vocabulary, as the pickle pushes it."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Opaque:
    """A harmless value that is passed over (a training argument, a path): what it held is not looked at."""

    name: str


@dataclass(frozen=True)
class Vocabulary:
    """The names that a pickle may use."""

    calls: Mapping[str, Callable[..., object]]  # names that may be called, with the functions that describe the result
    constants: Mapping[str, object]  # names that may be mentioned, with their values
    opaque: frozenset[str]  # names whose results are passed over
    persistent: Callable[[object], object]  # describes what a persistent id stands for


@dataclass(frozen=True, slots=True)
class PickledValue:
    """The value that a pickle describes, the count of instructions, and the names that were passed over."""

    value: object
    instructions: int
    passed_over: tuple[str, ...]


def read_pickle(data: bytes | memoryview, vocabulary: Vocabulary, *, label: str) -> PickledValue:
    """Return the value that a pickle describes; refuse what is not in the vocabulary, and more than a description needs."""
    if len(data) > PICKLE_CAP:
        said = f"{label}: the pickle has {len(data)} bytes, more than the {PICKLE_CAP} allowed"
        raise FormatError(said, hint="no list of tensors is as long; save the state dict alone")
    machine = _Machine(bytes(data), vocabulary, label)
    value = machine.run()
    return PickledValue(value, machine.instructions, tuple(dict.fromkeys(machine.passed_over)))


class _Machine:
    """A stack machine for one pickle."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, label: str) -> None:
        self._data, self._vocabulary, self._label = io.BytesIO(data), vocabulary, label
        self._size = len(data)
        self._stack: list[object] = []
        self._marks: list[list[object]] = []
        self._memo: list[object] = []
        self._left = MEMORY_CAP + len(data)
        self.instructions = 0
        self.passed_over: list[str] = []

    def run(self) -> object:
        """Carry out the instructions up to the last one."""
        data = self._data
        while self.instructions < INSTRUCTION_CAP:
            began = data.tell()
            code = data.read(1)
            if not code:
                raise self._wrong("is cut off before its end", began)
            name, parse, action = _INSTRUCTIONS.get(code) or (f"0x{code.hex()}", None, None)
            if action is None:
                raise self._wrong(f"uses the instruction {name}, which no state dict needs", began, _NO_CODE)
            self.instructions += 1
            try:
                action(self, parse(data) if parse else None)
            except Refusal as refusal:
                raise self._wrong(str(refusal), began, _NO_CODE) from None
            except UnicodeDecodeError:
                raise self._wrong("has text that is not UTF-8", began, _NO_CODE) from None
            except ValueError as error:  # of pickletools: so many bytes expected, so many left
                raise self._wrong(f"is cut off: {str(error)[:200]}", began) from None
            if name == "STOP":
                break
        else:
            raise self._wrong(f"has more than {INSTRUCTION_CAP} instructions", data.tell(), _NO_CODE)
        if data.tell() != self._size or len(self._stack) != 1 or self._marks:
            raise self._wrong("does not end with one value", data.tell())
        return self._stack[0]

    def _wrong(self, what: str, at: int, hint: str = "the file is damaged; fetch it again") -> FormatError:
        return FormatError(f"{self._label}: the pickle {what} (byte {at})", hint=hint)

    def _charge(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Refusal(f"makes values of more than {MEMORY_CAP + self._size} bytes")

    def _push(self, value: object, cost: int = 32) -> None:
        self._charge(cost + 8)
        self._stack.append(value)

    def _top(self) -> object:
        if not self._stack:
            raise Refusal("takes a value where there is none")
        return self._stack[-1]

    def _pop(self) -> object:
        self._top()
        return self._stack.pop()

    def _last(self, count: int) -> list[object]:
        return [self._pop() for _ in range(count)][::-1]

    def _since_mark(self) -> list[object]:
        if not self._marks:
            raise Refusal("closes a list that it has not begun")
        items, self._stack = self._stack, self._marks.pop()
        self._left += 80  # what the mark was charged
        return items

    def proto(self, version: int) -> None:
        if self.instructions != 1 or not 2 <= version <= 5:
            raise Refusal(f"declares protocol {version}, expected 2 to 5 at its beginning")

    def frame(self, length: int) -> None:
        left = self._size - self._data.tell()
        if length > left:
            raise Refusal(f"declares a frame of {length} bytes, {left} are left")

    def mark(self, _: None) -> None:
        if len(self._marks) >= _DEEPEST:
            raise Refusal(f"nests more than {_DEEPEST} deep")
        self._charge(80)
        self._marks.append(self._stack)
        self._stack = []

    def put(self, index: int | None) -> None:
        value, index = self._top(), len(self._memo) if index is None else index
        if index > len(self._memo):  # writers count; a gap would ask for memory that nothing fills
            raise Refusal(f"remembers value {index} after {len(self._memo)}")
        self._charge(16)
        self._memo[index : index + 1] = [value]

    def get(self, index: int) -> None:
        if index >= len(self._memo):
            raise Refusal(f"recalls value {index} of {len(self._memo)}")
        self._push(self._memo[index], 0)

    def text(self, value: str) -> None:
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which pickletools lets pass
            raise Refusal("has text that is not UTF-8") from None
        self._push(value, 60 + len(value) * (1 if value.isascii() else 4))

    def long1(self, value: int) -> None:
        if value.bit_length() > 8 * _LONGEST_INT:
            raise Refusal(f"has a number of {-(-value.bit_length() // 8)} bytes")
        self._push(value, 48)

    def tuple_of(self, items: list[object]) -> None:
        self._push(tuple(items), 60 + 8 * len(items))

    def dict_since_mark(self, _: None) -> None:
        items = self._since_mark()
        self._push({}, 100)
        self._set(items)

    def frozen_set(self, _: None) -> None:
        self._since_mark()
        self._push(Opaque("frozenset"), 60)

    def _add(self, items: list[object]) -> None:
        target = self._top()
        if isinstance(target, list):
            self._charge(16 * len(items))
            target += items
        elif not isinstance(target, Opaque):
            raise Refusal(f"appends to {_kind(target)}")

    def _set(self, items: list[object]) -> None:
        target = self._top()
        if len(items) % 2:
            raise Refusal("sets a key without a value")
        if isinstance(target, Opaque):
            return
        if not isinstance(target, dict):
            raise Refusal(f"sets keys of {_kind(target)}")
        self._charge(60 * len(items))
        add_items(target, list(zip(items[::2], items[1::2], strict=True)))

    def named(self, _: None) -> None:
        module, name = self._data.readline(512), self._data.readline(512)
        if not (module.endswith(b"\n") and name.endswith(b"\n")):
            raise Refusal("has a name without an end")
        self._global(_name(module[:-1]), _name(name[:-1]))

    def named_on_stack(self, _: None) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > 512:
            raise Refusal(f"names {_kind(module)} and {_kind(name)}, expected a module and a name")
        self._global(_name(module.encode()), _name(name.encode()))

    def _global(self, module: str, name: str) -> None:
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        words = self._vocabulary
        if full in words.constants:
            self._push(words.constants[full], 0)
        elif full in words.calls or full in words.opaque:
            self._push(Global(full), 120)
        else:
            raise Refusal(f"holds more than a description: kinprint refuses to import {full}")

    def call(self, _: None) -> None:
        arguments, target = self._pop(), self._pop()
        if not isinstance(target, Global) or not isinstance(arguments, tuple):
            raise Refusal(f"calls {_kind(target)} with {_kind(arguments)}")
        self._called(target.name, arguments)

    def new_with_names(self, _: None) -> None:
        names, _given, target = self._pop(), self._pop(), self._pop()
        if not isinstance(target, Global) or target.name not in self._vocabulary.opaque or not isinstance(names, dict):
            raise Refusal(f"makes {_kind(target)} with named arguments")
        self._called(target.name, ())

    def _called(self, name: str, arguments: tuple[object, ...]) -> None:
        if name in self._vocabulary.opaque:
            self.passed_over.append(name)
            self._push(Opaque(name), 80)
            return
        if len(arguments) > 16:
            raise Refusal(f"calls {name} with {len(arguments)} arguments")
        try:
            value = self._vocabulary.calls[name](*arguments)
        # TypeError: too many or too few; the functions check what they are given, and call nothing that raises it.
        except TypeError:
            raise Refusal(f"calls {name} with {len(arguments)} arguments") from None
        entries = len(value) if isinstance(value, (dict, tuple)) else 0
        self._push(value, 120 + 100 * entries)

    def build(self, _: None) -> None:
        state, target = self._pop(), self._top()
        # Attributes of a dictionary (its "_metadata") are none of its entries, and a passed-over value stays so.
        plain = isinstance(state, dict) and all(isinstance(key, str) for key in state)
        if not (isinstance(target, Opaque) or (isinstance(target, dict) and plain)):
            raise Refusal(f"sets the state of {_kind(target)} to {_kind(state)}")


_LARGEST_KEY = 1 << 60  # numbers below it are their own hashes


def add_items(target: dict[object, object], pairs: list[tuple[object, object]]) -> None:
    """Set keys of a dictionary: plain ones, and each of them once. What names no tensor stands there without its value."""
    for key, value in pairs:
        if not _is_plain(key) and not (isinstance(key, tuple) and len(key) <= 8 and all(map(_is_plain, key))):
            raise Refusal(f"has {_kind(key)} for a key")
        if not isinstance(key, str) and not (isinstance(key, int) and -_LARGEST_KEY < key < _LARGEST_KEY):
            key = Opaque(_kind(key))  # such can be chosen to share one hash; hashes of text are salted
        if key in target:
            raise Refusal(f"sets the key {key[:200]!r} twice" if isinstance(key, str) else "sets a key twice")
        target[key] = value


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bytes))


def _kind(value: object) -> str:
    """Name the type of a value without showing its content."""
    if isinstance(value, (Global, Opaque)):
        return value.name
    return "nothing" if value is None else f"a {type(value).__name__.strip('_').lower()}"


def _name(raw: bytes) -> str:
    """Return the name of a module or an attribute; refuse one that is not ASCII, or holds other signs than names have."""
    text = raw.decode("ascii", "replace")
    if not text or not all(char.isalnum() or char in "._" for char in text) or not text.isascii():
        raise Refusal(f"names {text[:80]!r}, which is no name")
    return text


_M = _Machine
_Action = Callable[[_Machine, Any], object]


def _pushes(make: Callable[[], object], cost: int) -> _Action:
    return lambda machine, _: machine._push(make(), cost)


_ACTIONS: dict[str, _Action] = {
    "PROTO": _M.proto,
    "FRAME": _M.frame,
    "STOP": lambda *_: None,  # `run` checks what is left
    "MARK": _M.mark,
    "POP": lambda m, _: m._last(1),
    "POP_MARK": lambda m, _: m._since_mark(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), _M.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _M.get),
    "NONE": _pushes(lambda: None, 0),
    "NEWTRUE": _pushes(lambda: True, 0),
    "NEWFALSE": _pushes(lambda: False, 0),
    "BININT1": lambda m, value: m._push(value, 0),  # Python keeps one of each of these
    **dict.fromkeys(("BININT2", "BININT", "BINFLOAT"), _M._push),
    "LONG1": _M.long1,
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _M.text),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), lambda m, raw: m._push(raw, 40 + len(raw))),
    "EMPTY_TUPLE": _pushes(tuple, 0),
    "TUPLE1": lambda m, _: m.tuple_of(m._last(1)),
    "TUPLE2": lambda m, _: m.tuple_of(m._last(2)),
    "TUPLE3": lambda m, _: m.tuple_of(m._last(3)),
    "TUPLE": lambda m, _: m.tuple_of(m._since_mark()),
    "EMPTY_LIST": _pushes(list, 100),
    "APPEND": lambda m, _: m._add(m._last(1)),
    "APPENDS": lambda m, _: m._add(m._since_mark()),
    "EMPTY_DICT": _pushes(dict, 100),
    "DICT": _M.dict_since_mark,
    "SETITEM": lambda m, _: m._set(m._last(2)),
    "SETITEMS": lambda m, _: m._set(m._since_mark()),
    "EMPTY_SET": _pushes(lambda: Opaque("set"), 60),
    "ADDITEMS": lambda m, _: m._add(m._since_mark()),
    "FROZENSET": _M.frozen_set,
    "GLOBAL": _M.named,
    "STACK_GLOBAL": _M.named_on_stack,
    "REDUCE": _M.call,
    "NEWOBJ": _M.call,
    "NEWOBJ_EX": _M.new_with_names,
    "BUILD": _M.build,
    "BINPERSID": lambda m, _: m._push(m._vocabulary.persistent(m._pop()), 100),
}
# By code: name, parser of the argument (a machine reads names itself: pickletools undoes escapes in them), and action. What has no
# action is refused: instructions that reach code by other ways, or belong to protocols before 2.
_INSTRUCTIONS: dict[bytes, tuple[str, Callable[[io.BytesIO], Any] | None, _Action | None]] = {
    known.code.encode("latin-1"): (
        known.name,
        known.arg.reader if known.arg and known.name != "GLOBAL" else None,
        _ACTIONS.get(known.name),
    )
    for known in pickletools.opcodes
}
