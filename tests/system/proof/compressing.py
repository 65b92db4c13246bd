"""Compression of different kinds, for so many seconds; run as a program."""

import bz2
import lzma
import random
import sys
import time
import zlib


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    chance = random.Random(1)
    while time.monotonic() < end:
        block = bytes(chance.choices(range(64), k=chance.randrange(1000, 40_000)))
        chance.choice((zlib.compress, bz2.compress, lambda data: lzma.compress(data, preset=0), sorted))(block)


if __name__ == "__main__":
    main()
