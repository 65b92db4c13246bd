"""Demangler for Rust's v0 symbol names (RFC 2603): paths, generic arguments and types, without hashes.

The names come from files that anyone may write, so depth and output are bounded: back references could make a short
name expand without end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MAX_DEPTH = 100
_MAX_OUTPUT = 8192

_BASIC_TYPES = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_INTEGERS = frozenset("aslxnihtmyoj")
_SPECIAL_NAMES = {"C": "closure", "S": "shim"}


class _Malformed(Exception):
    """The symbol is malformed, or exceeds the limits."""


def demangle_v0(symbol: str) -> str | None:
    """The readable form of a symbol that starts with _R; None when it is malformed."""
    mangled = symbol.partition(".")[0].partition("$")[0]  # without compiler-specific suffixes
    if not mangled.startswith("_R") or not mangled.isascii():
        return None
    printer = _Printer(mangled[2:])
    try:
        printer.path(in_value=True)
        if not printer.at_end():  # the crate that instantiated a generic function is not part of its name
            with printer.silence():
                printer.path(in_value=False)
        if not printer.at_end():
            return None
    except (_Malformed, RecursionError):
        return None
    return "".join(printer.out)


class _Printer:
    """Reads the symbol from left to right and writes its readable form."""

    def __init__(self, symbol: str) -> None:
        self._symbol = symbol
        self._at = 0
        self._depth = 0
        self._written = 0
        self._silent = False
        self._lifetimes = 0
        self.out: list[str] = []

    def at_end(self) -> bool:
        return self._at >= len(self._symbol)

    def _next(self) -> str:
        if self.at_end():
            raise _Malformed
        self._at += 1
        return self._symbol[self._at - 1]

    def _eat(self, char: str) -> bool:
        found = self._symbol.startswith(char, self._at)
        self._at += found
        return found

    def _base62(self) -> int:
        if self._eat("_"):
            return 0
        value = 0
        while (char := self._next()) != "_":
            if not char.isalnum():
                raise _Malformed
            value = value * 62 + int(char, 36) + (26 if char.isupper() else 0)
        return value + 1

    def _optional_base62(self, tag: str) -> int:
        return self._base62() + 1 if self._eat(tag) else 0

    def _identifier(self) -> str:
        punycode = self._eat("u")
        start = self._at
        if not self._eat("0"):
            while not self.at_end() and self._symbol[self._at].isdigit():
                self._at += 1
        if not start < self._at < start + 6:
            raise _Malformed
        length = int(self._symbol[start : self._at])
        self._eat("_")
        name = self._symbol[self._at : self._at + length]
        if len(name) != length:
            raise _Malformed
        self._at += length
        return _from_punycode(name) if punycode else name

    def _write(self, text: str) -> None:
        if self._silent:
            return
        self._written += len(text)
        if self._written > _MAX_OUTPUT:
            raise _Malformed
        self.out.append(text)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Read without writing."""
        before, self._silent = self._silent, True
        yield
        self._silent = before

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _Malformed
        yield
        self._depth -= 1

    def _back_reference(self, read: Callable[[], bool | None]) -> bool:
        """Read again from an earlier position."""
        here = self._at - 1
        target = self._base62()
        if target >= here:
            raise _Malformed
        if self._silent:
            return False
        after, self._at = self._at, target
        with self._deeper():
            result = read()
        self._at = after
        return bool(result)

    def _until_end(self, read: Callable[[], None], separator: str = ", ") -> int:
        count = 0
        while not self._eat("E"):
            if count:
                self._write(separator)
            read()
            count += 1
        return count

    def path(self, *, in_value: bool) -> None:
        with self._deeper():
            tag = self._next()
            if tag == "C":
                self._optional_base62("s")
                self._write(self._identifier())
            elif tag == "N":
                self._nested_path(in_value)
            elif tag in "MXY":
                self._implementation(tag)
            elif tag == "I":
                self.path(in_value=in_value)
                self._write("::<" if in_value else "<")
                self._until_end(self._generic_argument)
                self._write(">")
            elif tag == "B":
                self._back_reference(lambda: self.path(in_value=in_value))
            else:
                raise _Malformed

    def _nested_path(self, in_value: bool) -> None:
        namespace = self._next()
        if not namespace.isalpha():
            raise _Malformed
        self.path(in_value=in_value)
        disambiguator = self._optional_base62("s")
        name = self._identifier()
        if namespace.isupper():
            special = _SPECIAL_NAMES.get(namespace, namespace)
            self._write(f"::{{{special}{':' if name else ''}{name}#{disambiguator}}}")
        elif name:
            self._write(f"::{name}")

    def _implementation(self, tag: str) -> None:
        if tag != "Y":
            self._optional_base62("s")
            with self.silence():
                self.path(in_value=False)
        self._write("<")
        self._type()
        if tag != "M":
            self._write(" as ")
            self.path(in_value=False)
        self._write(">")

    def _generic_argument(self) -> None:
        if self._eat("L"):
            self._lifetime(self._base62())
        elif self._eat("K"):
            self._constant()
        else:
            self._type()

    def _lifetime(self, index: int) -> None:
        if not index:
            self._write("'_")
            return
        depth = self._lifetimes - index
        if depth < 0:
            raise _Malformed
        self._write(f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}")

    @contextmanager
    def _binder(self) -> Iterator[None]:
        """Lifetimes that the following type introduces: for<'a, 'b>."""
        bound = self._optional_base62("G")
        if bound > _MAX_DEPTH:
            raise _Malformed
        if bound:
            self._write("for<")
            for i in range(bound):
                self._write(", " if i else "")
                self._lifetimes += 1
                self._lifetime(1)
            self._write("> ")
        yield
        self._lifetimes -= bound

    def _type(self) -> None:
        with self._deeper():
            tag = self._next()
            if tag in _BASIC_TYPES:
                self._write(_BASIC_TYPES[tag])
            elif tag in "RQ":
                self._reference(mutable=tag == "Q")
            elif tag in "PO":
                self._write("*const " if tag == "P" else "*mut ")
                self._type()
            elif tag in "SA":
                self._write("[")
                self._type()
                if tag == "A":
                    self._write("; ")
                    self._constant()
                self._write("]")
            elif tag == "T":
                self._write("(")
                self._write(",)" if self._until_end(self._type) == 1 else ")")
            elif tag == "F":
                with self._binder():
                    self._function_type()
            elif tag == "D":
                self._dynamic_type()
            elif tag == "B":
                self._back_reference(self._type)
            else:
                self._at -= 1
                self.path(in_value=False)

    def _reference(self, *, mutable: bool) -> None:
        self._write("&")
        if self._eat("L") and (lifetime := self._base62()):
            self._lifetime(lifetime)
            self._write(" ")
        self._write("mut " if mutable else "")
        self._type()

    def _function_type(self) -> None:
        if self._eat("U"):
            self._write("unsafe ")
        if self._eat("K"):
            abi = "C" if self._eat("C") else self._identifier().replace("_", "-")
            self._write(f'extern "{abi}" ')
        self._write("fn(")
        self._until_end(self._type)
        self._write(")")
        if not self._eat("u"):
            self._write(" -> ")
            self._type()

    def _dynamic_type(self) -> None:
        self._write("dyn ")
        with self._binder():
            self._until_end(self._dynamic_trait, " + ")
        if not self._eat("L"):
            raise _Malformed
        if lifetime := self._base62():
            self._write(" + ")
            self._lifetime(lifetime)

    def _dynamic_trait(self) -> None:
        is_open = self._open_path()
        while self._eat("p"):
            self._write(", " if is_open else "<")
            is_open = True
            self._write(f"{self._identifier()} = ")
            self._type()
        if is_open:
            self._write(">")

    def _open_path(self) -> bool:
        """A trait whose generic argument list is left open so that its associated types can follow."""
        if self._eat("B"):
            return self._back_reference(self._open_path)
        if self._eat("I"):
            self.path(in_value=False)
            self._write("<")
            self._until_end(self._generic_argument)
            return True
        self.path(in_value=False)
        return False

    def _constant(self) -> None:
        with self._deeper():
            tag = self._next()
            if tag == "p":
                self._write("_")
            elif tag == "B":
                self._back_reference(self._constant)
            elif tag in _INTEGERS:
                sign = "-" if self._eat("n") else ""
                self._write(f"{sign}{self._hexadecimal()}")
            elif tag == "b":
                self._write("true" if self._hexadecimal() else "false")
            elif tag == "c":
                value = self._hexadecimal()
                if value > 0x10FFFF:
                    raise _Malformed
                self._write(repr(chr(value)))
            else:
                raise _Malformed

    def _hexadecimal(self) -> int:
        digits, _, _ = self._symbol[self._at :].partition("_")
        self._at += len(digits) + 1
        if self._at > len(self._symbol) or not all(digit in "0123456789abcdef" for digit in digits):
            raise _Malformed
        return int(digits or "0", 16)


def _from_punycode(name: str) -> str:
    """Decode identifiers with non-ASCII letters; Rust writes an underscore where punycode has a hyphen."""
    plain, _, encoded = name.rpartition("_")
    try:
        return (f"{plain}-{encoded}" if plain else encoded).encode().decode("punycode")
    except UnicodeError as error:
        raise _Malformed from error
