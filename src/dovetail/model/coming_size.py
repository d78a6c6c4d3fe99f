"""The size with which the pods of an owner came back lately: requests by container, and why they are known.

A plain value between `lifecycle`, which remembers it, and `scheduling`, which simulates with it.
"""

from dataclasses import dataclass

from dovetail.model.objects import ResourceList


@dataclass(frozen=True, slots=True, kw_only=True)
class GrownSize:
    """The largest requests of the containers of pods that came back; `owner`: in words, for people."""

    owner: str
    containers: tuple[tuple[str, ResourceList], ...]
