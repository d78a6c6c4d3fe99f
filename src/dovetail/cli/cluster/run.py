"""`dovetail run`: the controller, on a real cluster."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.kubernetes.client import ApiClient
    from dovetail.live.observability.logs import Log
    from dovetail.live.observability.metrics import Metrics
    from dovetail.live.run import Controller

_EPILOG = """\
Acts on the pools that carry the label dovetail.dev/manage: "true" or are named under `pools` in the settings; all
others are only observed. Start with --observe for a week: it decides and reports, and touches nothing.

examples:
  dovetail run --observe --catalog aws:us-east-1          look, don't touch
  dovetail run --catalog aws:us-east-1 --settings settings.yaml
  curl localhost:8080/metrics                             what it counts
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.live_cluster import add_cluster_options

    parser = subparsers.add_parser(
        "run",
        help="the controller, on a real cluster",
        description="Runs the controller beside Karpenter: it decides, Karpenter launches and drains.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", metavar="FILE", help="YAML or JSON with settings; read again when it changes")
    parser.add_argument(
        "--profile", default="dovetail", help="dovetail (the default) or karpenter-1.9 to karpenter-1.15"
    )
    parser.add_argument(
        "--catalog",
        metavar="C",
        help="aws:REGION (built in), aws-live:REGION (asks AWS) or a JSON file; default: the nodes' region",
    )
    parser.add_argument("--price-cache", metavar="FOLDER", help="where prices of aws-live outlive a restart")
    parser.add_argument(
        "--notify", metavar="FOLDER", help="webhooks: a folder with the files slack and/or json, a URL in each"
    )
    parser.add_argument(
        "--karpenter-deployment",
        metavar="NAMESPACE/NAME",
        help="read Karpenter's feature gates off its Deployment; the settings' own key `karpenter` wins",
    )
    parser.add_argument("--observe", action="store_true", help="decide and report, touch nothing")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:8080",
        help="metrics and probes; :PORT is every address, of IPv4 and IPv6",
    )
    parser.add_argument(
        "--probes", metavar="HOST:PORT", help="answer the probes here instead, where the metrics listen elsewhere"
    )
    parser.add_argument(
        "--lease-namespace", metavar="NS", help="where the Lease lives; default: the pod's, or kube-system"
    )
    parser.add_argument("--identity", help="the name on the Lease; default: the host's name and process")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--journal", metavar="FILE", help="append every event and instruction, for replay")
    parser.add_argument(
        "--provider",
        choices=("karpenter", "simulated"),
        default="karpenter",
        help="who launches and ends machines; simulated: this process plays cloud and kubelet (test clusters only)",
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    from dovetail.cli.live_cluster import with_client
    from dovetail.live.observability.logs import Log

    where = [_address("--listen", args.listen), *([_address("--probes", args.probes)] if args.probes else [])]
    log = Log(args.log_level)

    async def work(client: "ApiClient") -> int:
        return await _control(args, client, log, where)

    return with_client(args, work)


def _address(flag: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise InputError(f'{flag} is "{text}"; write HOST:PORT, such as 127.0.0.1:8080')
    return host.strip("[]"), int(port)


async def _control(args: argparse.Namespace, client: "ApiClient", log: "Log", where: list[tuple[str, int]]) -> int:
    from dovetail.api.settings import load_settings
    from dovetail.live.feeds import journal_to
    from dovetail.live.observability.metrics import Metrics
    from dovetail.live.observability.serve import PortError, serving
    from dovetail.live.patience import when_reachable

    load_settings(args.settings, args.profile)  # a mistake in the file is said first, whether there is a server or not
    metrics = Metrics()
    started: list[Controller] = []
    async with contextlib.AsyncExitStack() as stack:
        try:
            listening = await stack.enter_async_context(
                serving(
                    where[0],
                    metrics.registry,
                    alive=lambda: started[0].why_dead() if started else "",
                    ready=lambda: started[0].why_unready() if started else "waiting for the API server",
                    probes=where[1] if len(where) > 1 else None,
                )
            )
        except PortError as error:
            raise InputError(str(error)) from None
        controller = await when_reachable(client, log, lambda: _prepare(args, client, log, metrics))
        engine, catalogue = controller.engine, controller.engine.catalogue
        if args.journal:
            controller.journal = stack.enter_context(journal_to(args.journal, engine))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, controller.stop)
        log.info(
            "starting", identity=controller.identity, observe=engine.observe, profile=engine.settings.profile.value,
            port=listening, catalogue=catalogue.source, prices_as_of=catalogue.as_of, cluster=client.connection.name,
        )  # fmt: skip
        started.append(controller)
        await controller.run()
    log.info("stopped")
    return 0


async def _prepare(args: argparse.Namespace, client: "ApiClient", log: "Log", metrics: "Metrics") -> "Controller":
    """Read what a start needs from the server, and build the controller."""
    from dovetail.api.settings import load_settings
    from dovetail.lifecycle.engine import Engine
    from dovetail.lifecycle.engine_state import EngineRole
    from dovetail.live.alert_gate import watch_alerts
    from dovetail.live.feeds import catalogue_for, watch_crd, watch_settings
    from dovetail.live.kubernetes.crd_check import look_at_crd
    from dovetail.live.kubernetes.evictors import watch_evictors
    from dovetail.live.kubernetes.neighbour import find_neighbour, server_note
    from dovetail.live.prices.price_feed import begin, live_prices, watch_prices
    from dovetail.live.record_key import KeyRefusedError, load_seal
    from dovetail.live.regrets import watch_regrets
    from dovetail.live.run import Controller

    settings = load_settings(args.settings, args.profile)
    neighbour = await find_neighbour(client, args.karpenter_deployment)
    if neighbour is not None:
        settings = neighbour.merged(settings)
        log.info("Karpenter's Deployment was read", deployment=neighbour.where, version=neighbour.version or "unknown")
    for note in (await server_note(client), neighbour.note if neighbour is not None else ""):
        if note:
            log.warning(note)
    crd = await look_at_crd(client)
    if crd.note:
        log.warning(crd.note)
    prices = live_prices(args.catalog, args.price_cache)
    catalogue = await (begin(prices, log) if prices is not None else catalogue_for(client, args.catalog, log))
    identity = args.identity or f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"
    observe = args.observe or not crd.known
    background_tasks = [
        watch_crd(crd),
        watch_prices(catalogue, prices),
        watch_alerts(),
        watch_evictors(),
        watch_regrets,
    ]
    if args.notify:
        from dovetail.live.observability.notify import Notifier, read_targets

        background_tasks.append(Notifier(targets=read_targets(args.notify), log=log).background_task)
    if args.settings:
        adjust = neighbour.merged if neighbour is not None else (lambda found: found)
        background_tasks.append(watch_settings(args.settings, args.profile, adjust))
    if neighbour is not None:
        background_tasks.append(neighbour.background_task(lambda: load_settings(args.settings, args.profile)))
    if settings.recordings is not None:
        from dovetail.live.recorder import background_recording

        background_tasks.append(background_recording(settings.recordings.path, settings.recordings.keep))
    if args.provider == "simulated":
        from dovetail.standin.provider import simulated_provider

        background_tasks.append(simulated_provider(catalogue))
    engine = Engine(settings, catalogue, EngineRole(identity=identity, observe=observe, holds_first=True))
    namespace = args.lease_namespace or _own_namespace(client)
    try:
        seal = None if observe else await load_seal(client, namespace)
    except KeyRefusedError as error:
        raise InputError(str(error)) from None
    return Controller(
        client=client,
        engine=engine,
        log=log,
        metrics=metrics,
        identity=identity,
        lease_namespace=namespace,
        seal=seal,
        background_tasks=background_tasks,
    )


def _own_namespace(client: "ApiClient") -> str:
    return client.connection.namespace if client.connection.name == "in-cluster" else "kube-system"
