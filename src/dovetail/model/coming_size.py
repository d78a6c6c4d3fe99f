"""The size with which the pods of an owner came back lately: requests by container, and why they are known.

A plain value between `lifecycle`, which remembers it, and `scheduling`, which simulates with it.
"""

import msgspec

from dovetail.model.objects import ResourceList


class GrownSize(msgspec.Struct, frozen=True, kw_only=True):
    """The largest requests of the containers of pods that came back; `owner`: in words, for people."""

    owner: str
    containers: tuple[tuple[str, ResourceList], ...]
