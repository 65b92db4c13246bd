"""Runs inside the virtual machine: takes commands from a serial line, one JSON object a line, and answers with what
they returned and wrote."""

import json
import os
import signal
import subprocess
import tempfile
import termios
import tty

LINE = "/dev/ttyS1"


def answer(order: dict) -> dict:
    # Files rather than pipes: what a command leaves running may keep them open.
    with tempfile.TemporaryFile(dir="/run") as out, tempfile.TemporaryFile(dir="/run") as err:
        try:
            process = subprocess.Popen(
                order["words"], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )
        except OSError as error:
            return {"id": order["id"], "code": 127, "out": "", "err": str(error)}
        late = ""
        try:
            code = process.wait(order["seconds"])
        except subprocess.TimeoutExpired:
            # With all that it started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code, late = None, f"still running after {order['seconds']} s\n"
        return {"id": order["id"], "code": code, "out": text_of(out), "err": late + text_of(err)}


def text_of(file) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


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
