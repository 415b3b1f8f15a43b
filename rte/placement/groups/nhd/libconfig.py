"""The configuration format libconfig: parse and write.

Groups are dicts, lists ``( )`` tuples, arrays ``[ ]`` lists; numbers with a point or an exponent
are Decimals, so that ``12.5`` stays what it is. ``@include`` is refused: a file that came with a
pod must not name files of this machine. Comments are not kept. Source: the libconfig manual,
"Configuration files".
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn, TypeAlias, TypeVar

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Scalar: TypeAlias = bool | int | Decimal | str
Value: TypeAlias = Scalar | dict[str, "Value"] | list[Scalar] | tuple["Value", ...]

_T = TypeVar("_T")

MAX_DEPTH = 64

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|\#[^\n]*|//[^\n]*|/\*.*?\*/)
  | (?P<float>[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d{1,3})?|[-+]?\d+[eE][-+]?\d{1,3})
  | (?P<int>[-+]?(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+|\d+)L{0,2})
  | (?P<bool>(?:true|false)(?![-A-Za-z0-9_*]))
  | (?P<name>[A-Za-z*][-A-Za-z0-9_*]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<mark>[][{}(),;:=])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII | re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "b": "\b"}
_INT32 = range(-(2**31), 2**31)
_INT64 = range(-(2**63), 2**63)


def parse(text: str) -> dict[str, Value]:
    """Parse a configuration.

    Raises:
        errors.ParseError: text outside the format, with its line.
    """
    return _Parser(text).document()


def write(document: Mapping[str, Value]) -> str:
    """The configuration as text, one setting a line at the top level."""
    return "".join(f"{name} = {_write(value)};\n" for name, value in document.items())


def _write(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}" if value in _INT32 else f"{value}L"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text if "." in text else f"{text}.0"
    if isinstance(value, str):
        return f'"{"".join(map(_escape, value))}"'
    if isinstance(value, dict):
        return "{ " + "".join(f"{name} = {_write(inner)}; " for name, inner in value.items()) + "}"
    inner = ", ".join(map(_write, value))
    return f"[ {inner} ]" if isinstance(value, list) else f"( {inner} )"


def _escape(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter == "\n":
        return "\\n"
    return letter if letter.isprintable() or ord(letter) > 255 else f"\\x{ord(letter):02x}"


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read()
        self._depth = 0
        self._advance()

    def document(self) -> dict[str, Value]:
        settings = self._settings()
        if self._kind:
            self._fail(f"{self._token!r} where a setting was expected")
        return settings

    def _read(self) -> Iterator[tuple[str, str, int]]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None:
                self._position = position
                self._fail("cannot be read")
            if match.lastgroup != "skip":
                yield match.lastgroup or "", match[0], position
            position = match.end()
        yield "", "", position

    def _advance(self) -> None:
        self._kind, self._token, self._position = next(self._tokens)

    def _fail(self, why: str) -> NoReturn:
        line = self._text.count("\n", 0, self._position) + 1
        rest = self._text[self._position : self._position + 40]
        raise errors.ParseError("libconfig file", rest, f"line {line}: {why}")

    def _accept(self, marks: str) -> bool:
        if self._kind == "mark" and self._token in marks:
            self._advance()
            return True
        return False

    def _expect(self, marks: str) -> None:
        if not self._accept(marks):
            self._fail(f"expected {' or '.join(marks)}")

    def _settings(self) -> dict[str, Value]:
        settings: dict[str, Value] = {}
        while self._kind == "name":
            name = self._token
            if name in settings:
                self._fail(f"setting {name} is there twice")
            self._advance()
            self._expect(":=")
            settings[name] = self._value()
            self._accept(";,")
        return settings

    def _value(self) -> Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH}")
        value = self._compound() if self._kind == "mark" else self._scalar()
        self._depth -= 1
        return value

    def _compound(self) -> Value:
        if self._accept("{"):
            settings = self._settings()
            self._expect("}")
            return settings
        if self._accept("["):
            return self._members("]", self._scalar)
        self._expect("(")
        return tuple(self._members(")", self._value))

    def _members(self, end: str, read: Callable[[], _T]) -> list[_T]:
        found: list[_T] = []
        while not self._accept(end):
            found.append(read())
            if not self._accept(","):
                self._expect(end)
                break
        return found

    def _scalar(self) -> Scalar:
        kind, token = self._kind, self._token
        if kind == "text":
            texts = []
            while self._kind == "text":
                texts.append(_ESCAPE.sub(_unescape, self._token[1:-1]))
                self._advance()
            return "".join(texts)
        if kind not in {"bool", "int", "float"}:
            self._fail("expected a value")
        value: Scalar
        if kind == "bool":
            value = token.lower() == "true"
        elif kind == "float":
            value = Decimal(token)
        else:
            value = self._integer(token.rstrip("L"))
        self._advance()
        return value

    def _integer(self, digits: str) -> int:
        bare = digits.lstrip("+-")
        base = {"0x": 16, "0b": 2, "0o": 8}.get(bare[:2].lower(), 10)
        if len(bare) > 70:
            self._fail("number out of range")
        number = int(digits, base)
        if number not in _INT64:
            self._fail("number out of range")
        return number
