"""Runs inside the virtual machine: takes commands from a serial line, one JSON object a line, and answers with what
they returned and wrote."""

import json
import os
import subprocess
import termios
import tty

LINE = "/dev/ttyS1"


def answer(order: dict) -> dict:
    try:
        done = subprocess.run(
            order["words"], capture_output=True, check=False, timeout=order["seconds"], stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": f"still running after {order['seconds']} s"}
    except OSError as error:
        return {"code": 127, "out": "", "err": str(error)}
    return {
        "code": done.returncode,
        "out": done.stdout.decode(errors="replace"),
        "err": done.stderr.decode(errors="replace"),
    }


def main() -> None:
    line = os.open(LINE, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line, termios.TCSANOW)
    with os.fdopen(os.dup(line), "r", encoding="ascii") as orders, os.fdopen(line, "w", encoding="ascii") as answers:
        release = os.uname().release
        print(json.dumps({"ready": release}), file=answers, flush=True)
        for text in orders:
            order = json.loads(text)
            if order is None:
                return
            print(json.dumps(answer(order)), file=answers, flush=True)


if __name__ == "__main__":
    main()
