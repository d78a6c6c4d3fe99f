"""The other inputs of the controller: the settings file and the catalogue; and the journal that it writes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from dovetail.api.catalogue import CatalogueError, load_catalogue
from dovetail.api.clouds.detect import choose_catalogue
from dovetail.api.findings import InputError
from dovetail.api.reading.decode import decode_item
from dovetail.api.settings import load_settings
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.journal import encode_header, encode_line
from dovetail.lifecycle.messages import Event, Instruction, SettingsChanged
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.crd_check import CrdState, look_at_crd
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.live.observability.logs import Log
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import Node
from dovetail.model.settings import Settings

if TYPE_CHECKING:
    from dovetail.live.run import Controller

_LOOK_EVERY_SECONDS: Final = 5.0


async def catalogue_for(client: ApiClient, where: str | None, log: Log) -> Catalogue:
    """Return the catalogue that was named, else the built-in table of the nodes' region."""
    try:
        if where is None:
            listing = await client.list_all(BY_KIND["Node"].path())
            where, note = choose_catalogue(_nodes(listing.items))
            if note:
                log.warning(note)
        catalogue = load_catalogue(where)
    except CatalogueError as error:
        raise InputError(str(error)) from None
    if catalogue.as_of:
        log.info("prices", source=catalogue.source, as_of=catalogue.as_of)
    return catalogue


def _nodes(items: Iterable[msgspec.Raw]) -> Iterator[Node]:
    """Yield the nodes that can be read."""
    for raw in items:
        with contextlib.suppress(msgspec.DecodeError):
            node = decode_item(raw, "Node")
            assert isinstance(node, Node)
            yield node


def watch_settings(
    path: str, profile: str, adjust: Callable[[Settings], Settings] = lambda settings: settings
) -> "Callable[[Controller], Awaitable[None]]":
    """Read the settings file again whenever it changes; a broken one is reported and the old settings stay.

    `adjust`: adds other known values below the file's settings.
    """

    async def settings_file(controller: "Controller") -> None:
        seen = _stamp(path)
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            now = _stamp(path)
            if now == seen:
                continue
            seen = now
            try:
                settings = adjust(load_settings(path, profile))
            except InputError as error:
                controller.log.error("the settings file can't be used; the old settings stay", why=str(error))
                continue
            controller.log.info("settings read again", file=path)
            await controller.put(SettingsChanged(settings=settings))

    return settings_file


def watch_crd(first: CrdState) -> "Callable[[Controller], Awaitable[None]]":
    """Check the NodePool CRD periodically: a Karpenter upgrade may restore its own."""

    async def crd(controller: "Controller") -> None:
        seen = first
        while True:
            controller.metrics.crd_fields.set(0 if seen.missing or not seen.known else 1)
            await asyncio.sleep(controller.crd_seconds)
            try:
                now = await look_at_crd(controller.client)
            except (ApiError, UnreachableError):
                continue
            if now == seen:
                continue
            seen = now
            if not now.known and not controller.engine.observe:
                controller.log.error(now.note or "the CRD is unknown: stopping; started again it will only observe")
                controller.stop()
            elif now.note:
                controller.log.warning(now.note)
            else:
                controller.log.info("the CRD nodepools.karpenter.sh has Dovetail's fields")

    return crd


def _stamp(path: str) -> tuple[int, int]:
    """Return a value that changes with the file, also if a mounted ConfigMap swaps a link."""
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_ino)


@contextlib.contextmanager
def journal_to(path: str, engine: Engine) -> Iterator[Callable[[datetime, Event, Sequence[Instruction]], None]]:
    """Append to a file how the engine was created and then each of its steps, one per line."""
    try:
        file = Path(path).open("ab")  # noqa: SIM115 - closed below, after the last step
    except OSError as error:
        raise InputError(f"the journal {path} can't be written ({error.strerror})") from None

    def write(now: datetime, event: Event, instructions: Sequence[Instruction]) -> None:
        file.write(encode_line(now, event, instructions))
        file.flush()

    with file:
        file.write(encode_header(engine))
        yield write
