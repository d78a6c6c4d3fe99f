"""The command `dovetail`: finds the command's module, runs it, turns failures into one sentence and a status.

Only the module of the requested command is imported, so that `dovetail --version` and `plan` start fast. A new
command is one line in `COMMANDS` and a module `cli/<group>/<command>.py` with `register(subparsers)`, which adds its
parser and sets `run` (a function of the parsed arguments that gives the exit status).

Exit status: 0 done, 1 the answer is "no", 2 wrong usage or unreadable input, 130 interrupted.
"""

import argparse
import contextlib
import errno
import gc
import importlib
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from dovetail import __version__
from dovetail.api.findings import InputError, one_line
from dovetail.cli.output import abandon_stdout, fitted, ready_streams


class CommandEntry(NamedTuple):
    """One command: the word on the command line, the module below `dovetail.cli`, a line for the overview.

    `group` is where `dovetail --help` lists it; without one only `dovetail help all` does.
    """

    name: str
    module: str
    summary: str
    group: str = ""


GROUPS: Final = {
    "first": "the first hour:",
    "look": "look: why is it so?",
    "try": "try: what would another policy do?",
    "run": "run: let it act",
    "": "more:",
}
COMMANDS: Final = (
    CommandEntry("demo", "simulation.demo", "see it work: one cluster, old rules and new ones", "first"),
    CommandEntry("doctor", "cluster.doctor", "what is installed, allowed, managed and missing", "first"),
    CommandEntry("plan", "planning.plan", "what would be done next, what it saves, and why", "first"),
    CommandEntry("explain", "planning.explain", "why one node stays or goes, and what changes that", "first"),
    CommandEntry("whatif", "simulation.whatif", "your cluster's last day under another policy", "first"),
    CommandEntry(
        "blockers", "planning.blockers", "which workloads, PDBs and policies hold back how much money", "look"
    ),
    CommandEntry("budgets", "planning.budgets", "what each pool's budgets allow, now and over the coming days", "look"),
    CommandEntry("rollout", "planning.rollout", "how far a roll is, what it waits for, and when it will end", "look"),
    CommandEntry("ui", "cluster.ui", "watch a cluster, a recording or a simulation in a browser", "look"),
    CommandEntry("top", "cluster.top", "the same in the terminal", "look"),
    CommandEntry("snapshot", "cluster.snapshot", "capture what plan needs from a live cluster", "look"),
    CommandEntry(
        "validate", "reference.validate", "check NodePool and NodeClaim manifests before you apply them", "try"
    ),
    CommandEntry("diff", "planning.diff", "what a change of a NodePool would do, before it is merged", "try"),
    CommandEntry("record", "cluster.record", "record what happens in a live cluster, to try policies on it", "try"),
    CommandEntry("import", "cluster.import_series", "make a recording of the past from a Prometheus", "try"),
    CommandEntry("regret", "simulation.regret", "what was undone in a recording, and what would have helped", "try"),
    CommandEntry("tune", "simulation.tune", "find the setting that fits your cluster: bill against restarts", "try"),
    CommandEntry("simulate", "simulation.simulate", "run a scenario under one or more policies", "try"),
    CommandEntry("sweep", "simulation.sweep", "many policies and seeds; cost against disruption", "try"),
    CommandEntry("run", "cluster.run", "the controller, on a real cluster", "run"),
    CommandEntry("roll", "cluster.roll", "replace the nodes of a pool, or single nodes, in order", "run"),
    CommandEntry("pause", "cluster.pause", "stop new commands in some pools, or in all", "run"),
    CommandEntry("resume", "cluster.pause", "let paused or halted pools go on", "run"),
    CommandEntry("hold", "cluster.hold", "take Karpenter's own voluntary disruption off a pool's nodes", "run"),
    CommandEntry("release", "cluster.hold", "give it back", "run"),
    CommandEntry("place", "planning.place", "where the pending pods would go"),
    CommandEntry("replay", "simulation.replay", "play a recording of a real run again under other policies"),
    CommandEntry("catalog", "reference.catalog", "the built-in instance types and prices, by cloud and region"),
    CommandEntry("commitments", "reference.commitments", "savings plans and reserved instances for the settings"),
    CommandEntry("crds", "reference.crds", "print the CRDs"),
    CommandEntry("completion", "reference.completion", "print a completion script for bash, zsh or fish"),
)

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

_EXAMPLES: Final = """\
examples:
  dovetail demo                                    no cluster needed
  dovetail plan                                    the current kubeconfig's
  dovetail snapshot -o cluster.json.gz             or a capture of it
  dovetail plan -f cluster.json.gz --policy recommended
  dovetail explain NODE -f cluster.json.gz
  dovetail whatif -f cluster.json.gz --set consolidateAfter=5m
"""


def overview(prog: str, *, everything: bool = False) -> str:
    """Return the help of the program itself: its commands by group, with those of the first hour first."""
    shown = [f"usage: {prog} COMMAND [options]", ""]
    shown += textwrap.wrap(
        "Node disruption for Kubernetes beside Karpenter: see it, try another policy, carry it out.", 79
    )
    for group, title in GROUPS.items():
        entries = [entry for entry in COMMANDS if entry.group == group]
        if entries and (group or everything):
            shown += ["", title, *(f"  {entry.name:<12}{entry.summary}" for entry in entries)]
    shown += ["", *_EXAMPLES.replace("dovetail ", f"{prog} ").splitlines()]
    rest = [] if everything else [f"'{prog} help all' lists the other commands."]
    shown += ["", *rest, f"'{prog} COMMAND --help' says more about each, with examples."]
    return "\n".join(shown) + "\n"


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in one sentence, with exit status 2; description and examples fit a plain terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.description = self.description and textwrap.fill(self.description, 79)
        self.epilog = self.epilog and fitted(self.epilog)

    def error(self, message: str) -> NoReturn:
        """Exit with one sentence that says what is wrong and where to look."""
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def entry() -> NoReturn:
    """Run the command line of this process; SIGTERM ends it cleanly, as Ctrl-C does."""
    with contextlib.suppress(ValueError, OSError):  # not the main thread, or a system without it
        signal.signal(signal.SIGTERM, _terminated)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts a thread per core otherwise, for nothing
    status = main(sys.argv[1:], last=True)
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not show a traceback on the way out
    sys.exit(status)


def _terminated(number: int, _: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main(arguments: Sequence[str], *, last: bool = False) -> int:
    """Run one command line and return its exit status; `last`: the process ends after it."""
    frozen = gc.get_freeze_count()
    try:
        ready_streams()
        status = _run(arguments, last=last)
        sys.stdout.flush()
    except InputError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output has closed it
        abandon_stdout()
        return 141
    except OSError as error:
        if os.environ.get("DOVETAIL_DEBUG"):
            raise
        return _stopped(error)
    except MemoryError:
        return _refuse("not enough memory for this input")
    except Exception as error:
        if os.environ.get("DOVETAIL_DEBUG"):
            raise
        return _fault(error)
    finally:
        if not last and not frozen:
            gc.unfreeze()  # what this command loaded may be freed: the process goes on
    return status


def _run(arguments: Sequence[str], *, last: bool) -> int:
    if arguments and arguments[0] == "help":
        if list(arguments[1:]) in ([], ["all"]):
            print(overview(_program(), everything=len(arguments) > 1), end="")
            return 0
        arguments = [*arguments[1:], "--help"]
    elif arguments and arguments[0] in ("-h", "--help"):
        arguments = ()
    _check_command(arguments)
    parser = build_parser(arguments)
    try:
        parsed, unknown = parser.parse_known_args(arguments)
        if unknown:
            words = " ".join(unknown)
            near = _near_option(parser, _wanted(arguments), unknown[0])
            hint = f" (did you mean {near}?)" if near else ""
            prog = f"dovetail {_wanted(arguments) or ''}".rstrip()
            Parser(prog=prog).error(f"{one_line(words)} is not known here{hint}")
    except SystemExit as leaving:  # --help, --version and wrong usage
        return leaving.code if isinstance(leaving.code, int) else 0
    if not hasattr(parsed, "run"):
        print(overview(parser.prog), end="")
        return 0
    parsed.last = last
    status: int = parsed.run(parsed)
    return status


def _check_command(arguments: Sequence[str]) -> None:
    """Raise for an unknown command, with the most similar one."""
    wanted, known = _wanted(arguments), [entry.name for entry in COMMANDS]
    if wanted is None or wanted in known or arguments[0] != wanted:
        return
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "'dovetail --help' lists them"
    raise InputError(f"there is no command {one_line(wanted)}; {hint}")


def _near_option(parser: argparse.ArgumentParser, command: str | None, word: str) -> str | None:
    """Return the option of the command that is spelled most like the word, if any is."""
    if not word.startswith("--"):
        return None
    known: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and command in action.choices:
            known = [name for option in action.choices[command]._actions for name in option.option_strings]
    import difflib

    near = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.75)
    return near[0] if near else None


def build_parser(arguments: Sequence[str]) -> Parser:
    """Build the parser; only the requested command gets its options."""
    parser = Parser(prog=_program())
    parser.add_argument("--version", action="version", version=f"dovetail {__version__}")
    # argparse would format the usage to find the prog, which takes some modules.
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser, prog=parser.prog)
    wanted = _wanted(arguments)
    for command in COMMANDS:
        if command.name == wanted:
            importlib.import_module(f"dovetail.cli.{command.module}").register(subparsers)
    if wanted not in subparsers.choices or arguments[0] != wanted:
        for command in COMMANDS:  # an option came first: the command behind it is known all the same
            if command.name not in subparsers.choices:
                subparsers.add_parser(command.name, help=command.summary)
    return parser


def _program() -> str:
    """Return what was typed: `kubectl dovetail` if kubectl started this program."""
    return "kubectl dovetail" if Path(sys.argv[0]).name.startswith("kubectl-dovetail") else "dovetail"


def _wanted(arguments: Sequence[str]) -> str | None:
    """Return the requested command."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _refuse(sentence: str) -> int:
    print(f"dovetail: {sentence}", file=sys.stderr)
    return 2


def _stopped(error: OSError) -> int:
    """Return what the machine refused: a file that it names, or else the answer."""
    why = (error.strerror or str(error)).lower()
    if error.filename is not None:
        return _refuse(one_line(f"{error.filename} can't be used ({why}); check it, and its rights"))
    if error.errno not in _UNWRITABLE:
        return _fault(error)
    status = _refuse(f"the answer can't be written ({why}); make room, or write it elsewhere")
    abandon_stdout()
    return status


def _fault(error: Exception) -> int:
    return _refuse(f"a fault in dovetail ({type(error).__name__}: {_one_line(error)}); DOVETAIL_DEBUG=1 shows where")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    entry()
