"""The key that seals records of commands: kept in one Secret, shared by all replicas.

The first replica that acts creates the key; every other one, and every successor, reads it. The chart creates the
Secret empty, so that the controller needs permission to read and patch only this one. `key` seals; `previous`, if set,
still verifies what was sealed before a change of keys. The key never reaches a log.
docs/decisions/0008-records-are-sealed.md.
"""

import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any, Final

import msgspec

from dovetail.lifecycle.commands.seal import KEY_BYTES_MIN, Seal
from dovetail.live.kubernetes.client import JSON, MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.resources import SECRET

SECRET_NAME: Final = "dovetail-records"  # noqa: S105 - a name, not a secret
_KEY_BYTES: Final = 32
_TRIES: Final = 5


class KeyRefusedError(Exception):
    """The key is not available; the message says what to change."""


async def load_seal(client: ApiClient, namespace: str) -> Seal:
    """Return the cluster's seal; create its key if there is none yet."""
    for _ in range(_TRIES):
        try:
            return await _load(client, namespace)
        except ApiError as error:
            if error.status == 403:
                rule = SECRET.rule("get, patch", SECRET_NAME)
                refused = f"not allowed to use Secret {namespace}/{SECRET_NAME}"
                raise KeyRefusedError(f"{refused}: add {rule} to Dovetail's role there ({error})") from None
            if error.status != 409:
                raise
    raise KeyRefusedError(f"Secret {namespace}/{SECRET_NAME} keeps changing; delete it, and Dovetail creates a new one")


async def _load(client: ApiClient, namespace: str) -> Seal:
    fresh = {"key": b64encode(secrets.token_bytes(_KEY_BYTES)).decode()}
    path = SECRET.path(SECRET_NAME, namespace)
    try:
        found: dict[str, Any] = msgspec.json.decode(await client.request("GET", path))
    except ApiError as error:
        if error.status != 404:
            raise
        metadata = {"name": SECRET_NAME, "namespace": namespace}
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": fresh}
        body = msgspec.json.encode(made)
        await client.request("POST", SECRET.path(namespace=namespace), body=body, content_type=JSON)
        return _seal(fresh, namespace)
    data = found.get("data")
    if isinstance(data, dict) and "key" in data:
        return _seal(data, namespace)
    version = (found.get("metadata") or {}).get("resourceVersion", "")
    patch = {"metadata": {"resourceVersion": version}, "data": fresh}
    await client.request("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE_PATCH)
    return _seal(fresh, namespace)


def _seal(data: dict[str, Any], namespace: str) -> Seal:
    keys = []
    for name in ("key", "previous"):
        if name in data:
            try:
                key = b64decode(str(data[name]), validate=True)
            except (Base64Error, ValueError):
                key = b""
            if len(key) < KEY_BYTES_MIN:
                where = f"Secret {namespace}/{SECRET_NAME}"
                raise KeyRefusedError(
                    f"{name} in {where} is not a key of at least {KEY_BYTES_MIN} bytes; delete it, and Dovetail "
                    "creates a new one"
                )
            keys.append(key)
    return Seal(tuple(keys))
