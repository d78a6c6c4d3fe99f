"""What a process inherits from the shell that starts it, set to what the tests rely on.

A shell ignores SIGINT in its background jobs, `nohup` ignores SIGHUP, and a supervisor may block signals. Programs that
a test starts inherit that from the test run, and then never see the Ctrl-C that the test sends. A proxy in the
environment answers for the servers that tests start on this machine, and DOVETAIL_DEBUG shows tracebacks.
"""

import os
import signal
from typing import Final

_PYTHON_IGNORES: Final = {signal.SIGPIPE, signal.SIGXFSZ}  # and gives them back to the programs that it starts


def reset_signals() -> list[signal.Signals]:
    """Unblock every signal, give ignored ones their default action, and return the ones that were changed.

    Call it in the main thread.
    """
    changed = sorted(signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals()))
    for number in sorted(signal.Signals):
        if number not in _PYTHON_IGNORES and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
            changed.append(number)
    return [signal.Signals(number) for number in changed]


def reset_environment() -> None:
    """Reach this machine without a proxy, and print sentences instead of tracebacks."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(("127.0.0.1", "::1", "[::1]", "localhost", *filter(None, [os.environ.get(name)])))
    os.environ.pop("DOVETAIL_DEBUG", None)
