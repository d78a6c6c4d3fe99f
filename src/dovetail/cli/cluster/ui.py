"""`dovetail ui`: the live view in a browser, on a cluster, a capture, a recording or a simulation. Read-only."""

import argparse
import sys
from typing import TYPE_CHECKING

from dovetail.api.findings import InputError
from dovetail.cli.inputs import add_input_options
from dovetail.cli.live_cluster import add_live_options

if TYPE_CHECKING:
    from dovetail.ui.sources import DocumentSource
    from dovetail.ui.watcher import Watcher

_EPILOG = """\
It listens on localhost. To listen anywhere else, set a token with --token-file and open the
address that is printed. It never writes to a cluster.

examples:
  dovetail ui                                            the cluster of the kubeconfig
  dovetail ui -f cluster.json                            a captured cluster
  dovetail ui last-week                                  a recording, from its start
  dovetail ui --scenario issue-7146 --speed 300          a simulation, five minutes a second
  dovetail ui --history dovetail.sqlite                  keeps what it has seen across restarts
"""
PORT = 8717


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "ui",
        help="watch a cluster, a recording or a simulation in a browser",
        description="Shows what is happening, what comes next and when, why, and what it is worth. Read-only.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "recording", metavar="RECORDING", nargs="?", help="what `dovetail record` wrote, to play and go through"
    )
    add_watch_options(parser)
    group = parser.add_argument_group("server")
    group.add_argument(
        "--listen", metavar="HOST:PORT", default=f"localhost:{PORT}", help=f"by default localhost:{PORT}; port 0: any"
    )
    group.add_argument("--token-file", metavar="FILE", help="the token that a browser must have; needed off localhost")
    parser.set_defaults(run=run)


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to watch."""
    add_input_options(parser)
    add_live_options(parser)
    group = parser.add_argument_group("simulation")
    group.add_argument("--scenario", metavar="SCENARIO", help="watch this scenario run instead of a cluster")
    group.add_argument("--policy", metavar="NAME[=FILE]", help="its policy; by default the scenario's last")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="the world's seed (default 0)")
    group.add_argument(
        "--speed",
        metavar="N",
        type=int,
        default=60,
        help="simulated or recorded seconds per second (default 60)",
    )
    parser.add_argument("--history", metavar="FILE", help="an SQLite file that keeps what was seen across restarts")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    import asyncio

    from dovetail.ui.history import History
    from dovetail.ui.server import Server, is_loopback, serve
    from dovetail.ui.watcher import Watcher

    host, port = _address(args.listen)
    token = _token(args.token_file)
    if token is None and not is_loopback(host):
        raise InputError(f"--listen {args.listen} can be reached from other machines; add --token-file FILE")
    watcher = _recording(args) if args.recording is not None else Watcher(source_of(args), History(args.history))
    source = watcher.source
    server = Server(watcher, f"Dovetail: {source.status().name}", token)
    shown = f"[{host}]" if ":" in host else host

    def ready(chosen: int) -> None:
        query = "" if token is None else "?token=..."
        print(f"watching {source.status().name}: open http://{shown}:{chosen}/{query}", file=sys.stderr, flush=True)

    watcher.start()
    try:
        asyncio.run(serve(server, host, port, ready))
    except OSError as error:
        raise InputError(f"--listen {args.listen} can't be used ({error.strerror or error}); give another") from None
    finally:
        watcher.stop()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InputError(f"--listen is {text!r}; write HOST:PORT, such as localhost:{PORT}")
    return host, int(port)


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    from pathlib import Path

    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"--token-file {path}: it can't be read; write a file with one line") from None
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"--token-file {path}: write at least 16 letters or digits, such as `openssl rand -hex 16`")
    return token


def _recording(args: argparse.Namespace) -> "Watcher":
    """Return what watches a recording play."""
    from pathlib import Path

    from dovetail.cli.inputs import load_settings_option
    from dovetail.cli.recorded import load_recorded
    from dovetail.ui.recorded import RecordingSource, recorded_past
    from dovetail.ui.watcher import Watcher

    if args.files or args.scenario is not None:
        raise InputError("give a RECORDING, -f FILE or --scenario, only one of them")
    if args.history is not None:
        raise InputError("--history is for a cluster or a simulation; a recording has its own history")
    speed = _speed(args)
    recording, catalogue = load_recorded(Path(args.recording), args.catalog)
    source = RecordingSource(
        Path(args.recording).resolve().name, recording, catalogue, load_settings_option(args), speed
    )
    return Watcher(source, *recorded_past(recording, catalogue))


def _speed(args: argparse.Namespace) -> int:
    from dovetail.ui.sources import SPEEDS

    if args.speed not in SPEEDS:
        raise InputError(f"--speed is {args.speed}; write one of: {', '.join(map(str, SPEEDS))}")
    return int(args.speed)


def source_of(args: argparse.Namespace) -> "DocumentSource":
    """Return what the options say to watch."""
    if args.scenario is not None:
        return _simulation(args)
    if args.files:
        from pathlib import Path

        from dovetail.cli.inputs import load_question
        from dovetail.ui.sources import CaptureSource

        return CaptureSource(", ".join(Path(name).name or name for name in args.files), load_question(args))
    return _cluster(args)


def _simulation(args: argparse.Namespace) -> "DocumentSource":
    from dovetail.cli.simulation.simulate import chosen_policies
    from dovetail.sim.scenarios.scenario import load_scenario
    from dovetail.ui.sources import SimulationSource

    if args.files:
        raise InputError("--scenario and -f exclude each other; leave one out")
    speed = _speed(args)
    scenario = load_scenario(args.scenario)
    policy = chosen_policies(scenario, [args.policy])[0] if args.policy else scenario.policies[-1]
    return SimulationSource(scenario, policy, args.seed, speed)


def _cluster(args: argparse.Namespace) -> "DocumentSource":
    from dovetail.cli.inputs import load_catalogue_option, load_settings_option, names_settings
    from dovetail.live.kubernetes.credentials import CredentialsError, connect
    from dovetail.ui.sources import ClusterSource

    try:
        connection = connect(args.kubeconfig, args.context)
    except CredentialsError as error:
        raise InputError(str(error)) from None
    given = load_settings_option(args)
    settings = given if names_settings(args) else None
    name = connection.name or connection.server
    return ClusterSource(
        name, connection, settings, lambda cluster: load_catalogue_option(args, cluster), args.controller_namespace
    )
