"""Demangle function names: C++ through the C++ runtime, Rust by its own rules."""

import ctypes
import re
from functools import cache

from exhume.collect.symbols.parser.rust_v0 import demangle_v0

# Longer names are left as they are. So are C++ names with many substitutions: each may double the length of the result,
# and a name crafted for that would fill the memory.
_MAX_MANGLED = 1024
_MAX_REFERENCES = 32
_MAX_READABLE = 4096
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")

_RUST_LEGACY = re.compile(r"_ZN(?P<path>.+)17h[0-9a-f]{16}E(?P<suffix>(?:\.[\w.@]+)?)$")
_RUST_ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_RUST_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u([0-9a-f]{1,6}))\$|(\.\.)")
_LLVM_SUFFIX = re.compile(r"\.llvm\.[0-9A-F@]+$")


def is_mangled(name: bytes) -> bool:
    """Whether `demangle` may change a name."""
    return name.startswith((b"_R", b"_Z")) or b"@" in name


def demangle(name: str) -> str:
    """The readable form of a symbol; the symbol itself when it is not mangled or is malformed."""
    if "@" in name and not name.startswith("@"):
        name = name.partition("@")[0]  # without the symbol version
    if len(name) > _MAX_MANGLED:
        return name
    if name.startswith("_R"):
        return demangle_v0(name) or name
    if name.startswith("_Z"):
        return _rust_legacy(name) or _cplusplus(name) or name
    return name


def _rust_legacy(name: str) -> str | None:
    """Demangle Rust's legacy scheme, which has the form of a C++ name with a hash at the end."""
    match = _RUST_LEGACY.match(name)
    if match is None:
        return None
    parts: list[str] = []
    rest = match["path"]
    while rest:
        digits = re.match(r"[0-9]+", rest)
        if digits is None:
            return None
        length = int(digits[0])
        part, rest = rest[digits.end() : digits.end() + length], rest[digits.end() + length :]
        if len(part) != length or not length:
            return None
        # An identifier cannot begin with an escape, so one that would has an underscore in front.
        parts.append(_RUST_ESCAPE.sub(_unescape, part[1:] if part.startswith("_$") else part))
    return "::".join(parts)


def _unescape(match: "re.Match[str]") -> str:
    if match[3]:
        return "::"
    if match[2]:
        return chr(int(match[2], 16)) if int(match[2], 16) < 0x110000 else match[0]
    return _RUST_ESCAPES[match[1]]


class _CxxRuntime:
    """The C++ runtime's demangler; does nothing without that library."""

    def __init__(self) -> None:
        self._demangle = None
        try:
            function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
        except (OSError, AttributeError):
            return
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        function.restype = ctypes.c_void_p
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._demangle = function

    def __call__(self, name: str) -> str | None:
        if self._demangle is None:
            return None
        status = ctypes.c_int()
        result = self._demangle(name.encode(), None, None, ctypes.byref(status))
        if not result:
            return None
        try:
            return ctypes.string_at(result).decode("utf-8", "replace")
        finally:
            self._free(result)


@cache
def _runtime() -> _CxxRuntime:
    return _CxxRuntime()


def _cplusplus(name: str) -> str | None:
    if len(_REFERENCE.findall(name)) > _MAX_REFERENCES:
        return None
    readable = _runtime()(_LLVM_SUFFIX.sub("", name))
    return readable if readable is None or len(readable) <= _MAX_READABLE else None
