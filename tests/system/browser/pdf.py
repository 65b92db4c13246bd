"""Where pictures and areas of one colour are in a PDF that Chromium printed, in points."""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

STREAM = re.compile(rb"\d+ 0 obj\s*<<(?:(?!endobj).)*?>>\s*stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
TOKEN = re.compile(rb"\((?:\\.|[^\\)])*\)|<[0-9A-Fa-f]*>|\[[^\]]*\]|/[^\s/<>\[\]()]+|[-+.\d]+|[A-Za-z*'\"]+")
NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)")
Matrix = tuple[float, ...]
Point = tuple[float, float]
# Their last operands are points of the path.
POINTS = {b"m": 1, b"l": 1, b"c": 3}
PAINTS = (b"f", b"f*", b"S", b"B")


@dataclass(frozen=True)
class Drawn:
    """`what` is the name of a picture, or the colour of an area."""

    what: bytes | tuple[int, ...]
    left: float
    right: float
    top: float
    bottom: float


def image_name(pdf: bytes, width: int, height: int) -> bytes:
    """The name by which a picture of this size is drawn: Chromium's have the number of their object."""
    sizes = re.findall(rb"(\d+) 0 obj\s*<<([^>]*?/Subtype /Image.*?)>>", pdf, re.DOTALL)
    wanted = (b"/Width %d" % width, b"/Height %d" % height)
    (number,) = [number for number, head in sizes if all(re.search(size + rb"\b", head) for size in wanted)]
    return b"/X" + number


def drawn_in(pdf: bytes) -> Iterator[Drawn]:
    for found in STREAM.finditer(pdf):
        try:
            text = zlib.decompress(found[1])
        except zlib.error:
            continue
        if b" cm\n" in text:
            yield from _drawn(text)


def _drawn(text: bytes) -> Iterator[Drawn]:
    matrix: Matrix = (1, 0, 0, 1, 0, 0)
    colour: tuple[int, ...] = ()
    saved: list[tuple[Matrix, tuple[int, ...]]] = []
    operands: list[float] = []
    name = b""
    path: list[Point] = []
    for token in TOKEN.findall(text):
        if NUMBER.fullmatch(token):
            operands.append(float(token))
            continue
        if token[:1] in b"(<[/":
            name = token
            continue
        if token == b"q":
            saved.append((matrix, colour))
        elif token == b"Q":
            matrix, colour = saved.pop()
        elif token == b"cm":
            matrix = _after(operands[-6:], matrix)
        elif token == b"rg":
            colour = tuple(round(255 * part) for part in operands[-3:])
        elif token == b"re":
            x, y, width, height = operands[-4:]
            path += [(x, y), (x + width, y + height)]
        elif token in POINTS:
            numbers = operands[-2 * POINTS[token] :]
            path += list(zip(numbers[::2], numbers[1::2], strict=True))
        elif token in PAINTS and path:
            yield _box(colour, matrix, path)
        elif token == b"Do":
            yield _box(name, matrix, [(0, 0), (1, 1)])
        if token in PAINTS or token == b"n":
            path = []
        operands = []


def _after(first: list[float], second: Matrix) -> Matrix:
    a, b, c, d, e, f = first
    x = second
    return (
        *(a * x[0] + b * x[2], a * x[1] + b * x[3]),
        *(c * x[0] + d * x[2], c * x[1] + d * x[3]),
        *(e * x[0] + f * x[2] + x[4], e * x[1] + f * x[3] + x[5]),
    )


def _box(what: bytes | tuple[int, ...], by: Matrix, path: list[Point]) -> Drawn:
    xs = [by[0] * x + by[2] * y + by[4] for x, y in path]
    ys = [by[1] * x + by[3] * y + by[5] for x, y in path]
    # The axis of PDF goes up.
    return Drawn(what, min(xs), max(xs), max(ys), min(ys))
