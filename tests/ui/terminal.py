"""A real terminal for tests: a program on a pseudo-terminal, its screen kept by pyte."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyte

UP, DOWN, ENTER, ESCAPE, TAB = "\x1b[A", "\x1b[B", "\r", "\x1b", "\t"


class Terminal:
    """One program and what its screen shows."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int, width: int, height: int) -> None:
        self.process = process
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self._master = master

    def read(self, seconds: float) -> None:
        """Read what the program writes for a while."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self._master], [], [], left)
            if not ready:
                return
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            if not data:
                return
            self._stream.feed(data)

    @property
    def text(self) -> str:
        """Return the text of the screen."""
        return "\n".join(self.screen.display)

    def see(self, wanted: str, seconds: float = 60) -> str:
        """Wait until the screen shows a text; return the screen."""
        until = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < until, f"{wanted!r} does not appear on:\n{self.text}"
            self.read(0.1)
        return self.text

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())
        self.read(0.5)

    def resize(self, width: int, height: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)
        self.process.send_signal(signal.SIGWINCH)
        self.read(0.7)


@contextmanager
def terminal(*arguments: str, width: int = 100, height: int = 30, term: str = "linux") -> Iterator[Terminal]:
    """Run `dovetail` on a terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli.main", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": term, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
    )
    os.close(slave)
    try:
        yield Terminal(process, master, width, height)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
