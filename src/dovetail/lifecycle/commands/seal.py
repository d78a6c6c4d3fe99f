"""How Dovetail recognises its own records: a keyed digest (HMAC) that only a holder of the key can write.

Anyone who may annotate a Node, including its own kubelet, can write any record; Dovetail obeys only records with a
valid digest. All replicas share the key, so that a successor trusts what its predecessor wrote. Every shell passes
objects through `admit`: a record that can't be read, isn't sealed, or is on an object it doesn't name is removed, with
the reason, before the engine sees the object. docs/decisions/0008-records-are-sealed.md. Pure; a shell keeps the key.
Sits in lifecycle, above `records`.
"""

import hmac
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from dovetail.lifecycle.commands.records import Record, encode_record, read_record
from dovetail.lifecycle.messages import ObjectObserved
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim

KEY_BYTES_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Seal:
    """The keys: the first one seals, any of them verifies. Never shown, logged or journaled."""

    keys: tuple[bytes, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.keys or any(len(key) < KEY_BYTES_MIN for key in self.keys):
            raise ValueError(f"a seal needs keys of at least {KEY_BYTES_MIN} bytes")

    def sealed(self, text: str) -> str:
        """Return an unsealed record's text with its digest; other texts are returned unchanged."""
        record = read_record(text)
        if isinstance(record, str):
            return text
        return encode_record(msgspec.structs.replace(record, seal=_digest(self.keys[0], record)))

    def opened(self, text: str) -> Record | str:
        """Return the record in a text, or why it is not trusted."""
        record = read_record(text)
        if isinstance(record, str):
            return record
        if not record.seal:
            return "it is not sealed"
        given = record.seal.encode("utf-8", "surrogatepass")
        if not any(hmac.compare_digest(_digest(key, record).encode(), given) for key in self.keys):
            return "its seal is not Dovetail's"
        return record


def _digest(key: bytes, record: Record) -> str:
    plain = encode_record(msgspec.structs.replace(record, seal=""))
    return hmac.new(key, plain.encode("utf-8", "surrogatepass"), sha256).hexdigest()


def admit(event: ObjectObserved, seal: Seal) -> ObjectObserved:
    """Return the observation without an untrusted record; `distrusted` says why."""
    item = event.object
    if not isinstance(item, Node | NodeClaim):
        return event
    text = item.metadata.annotations.get(names.COMMAND)
    if text is None:
        return event
    record = seal.opened(text)
    why = record if isinstance(record, str) else _misplaced(item, record)
    if not why:
        return event
    kept = {key: value for key, value in item.metadata.annotations.items() if key != names.COMMAND}
    metadata = msgspec.structs.replace(item.metadata, annotations=kept)
    return ObjectObserved(object=msgspec.structs.replace(item, metadata=metadata), distrusted=why)


def _misplaced(item: Node | NodeClaim, record: Record) -> str:
    """Return why a record does not belong on an object; empty if it does.

    Karpenter copies a replacement's record onto its Node, whose name is not known before: a record with replacements
    may be on any Node. There it applies to that Node only.
    """
    if isinstance(item, NodeClaim):
        return "" if item.metadata.name in record.replacements else "it does not name this NodeClaim"
    if record.replacements or any(entry.node == item.metadata.name for entry in record.nodes):
        return ""
    return "it does not name this Node"
