"""What can be found out about Karpenter and the server at the start: versions, and how Karpenter was started.

Reading Karpenter's Deployment needs an extra permission (opt-in in the chart); without it Dovetail relies on the
settings and on conditions of objects. Decides nothing. Sits in live.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dovetail.api.findings import InputError
from dovetail.api.karpenter import minor_of, read_deployment
from dovetail.api.versions import version_note
from dovetail.lifecycle.messages import SettingsChanged
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.model.karpenter import KarpenterSettings
from dovetail.model.settings import Settings

if TYPE_CHECKING:
    from dovetail.live.run import Controller

_EVERY_SECONDS: Final = 300.0
_VERSION_LABEL: Final = "app.kubernetes.io/version"
USUAL_PLACES: Final = ("kube-system/karpenter", "karpenter/karpenter")
"""Where Karpenter's chart puts its Deployment."""


async def server_note(client: ApiClient) -> str:
    """Return whether the server's version is supported; empty where it is, or where it does not say."""
    try:
        tree = msgspec.json.decode(await client.request("GET", "/version"))
    except (ApiError, msgspec.DecodeError):
        return ""
    version = tree.get("gitVersion") if isinstance(tree, dict) else None
    return version_note("Kubernetes", version) if isinstance(version, str) else ""


async def find_neighbour(client: ApiClient, where: str = "") -> "Neighbour | None":
    """Return Karpenter's Deployment: the one that is named, or one in a usual place that may be read; None: neither.

    Raise an InputError if the one that is named can't be read.
    """
    if where:
        named = Neighbour(where)
        await named.look(client)
        return named
    for where in USUAL_PLACES:
        found = Neighbour(where)
        try:
            await found.look(client)
        except (ApiError, InputError):
            continue
        return found
    return None


class Neighbour:
    """Karpenter's Deployment (`NAMESPACE/NAME`): how it was started, and which version it is."""

    def __init__(self, where: str) -> None:
        space, slash, name = where.partition("/")
        if not slash or not space or not name:
            raise InputError(
                f"--karpenter-deployment is {where!r}; write NAMESPACE/NAME, such as kube-system/karpenter"
            )
        self.where, self._path = where, BY_KIND["Deployment"].path(name, space)
        self.found = KarpenterSettings(source=f"Deployment {where}")
        self.note = ""

    async def look(self, client: ApiClient) -> None:
        """Read the Deployment; raise an InputError with the rule to add where that is not allowed."""
        try:
            tree: Any = msgspec.json.decode(await client.request("GET", self._path))
        except ApiError as error:
            if error.status == 403:
                rule = BY_KIND["Deployment"].rule("get")
                raise InputError(f"not allowed to read Deployment {self.where}: add {rule} in its namespace") from None
            if error.status == 404:
                raise InputError(f"there is no Deployment {self.where}: name Karpenter's own") from None
            raise
        if not isinstance(tree, dict):
            raise InputError(f"Deployment {self.where} can't be read")
        self.found = read_deployment(tree, f"Deployment {self.where}")
        version = _version(tree)
        self.found = replace(self.found, minor=minor_of(version))
        self.note = version_note("Karpenter", version) if version else ""

    @property
    def version(self) -> str:
        """Return the version as `1.14`; empty: it is not known."""
        return "" if self.found.minor is None else f"1.{self.found.minor}"

    def merged(self, settings: Settings) -> Settings:
        """Return settings completed with what the Deployment says."""
        return replace(settings, karpenter=settings.karpenter.over(self.found))

    def background_task(self, read: Callable[[], Settings]) -> "Callable[[Controller], Awaitable[None]]":
        """Return a task that checks periodically: an upgrade may change Karpenter's gates."""

        async def neighbour(controller: "Controller") -> None:
            while True:
                await asyncio.sleep(_EVERY_SECONDS)
                before = self.found
                try:
                    await self.look(controller.client)
                    settings = read()
                except (ApiError, UnreachableError, InputError) as error:
                    controller.log.warning("Karpenter's Deployment can't be read again", why=str(error))
                    continue
                if self.found != before:
                    controller.log.info("Karpenter was started otherwise", deployment=self.where)
                    await controller.put(SettingsChanged(settings=self.merged(settings)))

        return neighbour


def _version(tree: dict[str, Any]) -> str:
    """Return the version that a Deployment states in its label, or in the tag of its image; empty: neither does."""
    labels = tree.get("metadata", {}).get("labels") or {}
    stated = labels.get(_VERSION_LABEL)
    if isinstance(stated, str):
        return stated
    containers = tree.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or ()
    for container in containers:
        image = container.get("image") if isinstance(container, dict) else None
        if isinstance(image, str):
            tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
            if minor_of(tag) is not None:
                return tag
    return ""
