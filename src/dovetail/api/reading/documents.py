"""From bytes to documents: gzip, encodings, JSON or YAML, one document or many, Lists taken apart.

Every object becomes a `Document`: JSON stays raw (80,000 pods are decoded straight into structs later), YAML becomes a
tree. Knows kinds only as words. Errors are `InputError`s without the file's name; `decode` and `cli` add it. Sits in
api.
"""

import io
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError, shown

MIB: Final = 1024 * 1024
CLUSTER_MAX: Final = 2048 * MIB  # a captured cluster, unpacked
UNPACKED_MAX: Final = 512 * MIB  # what a gzip file may unpack to; 5,000 nodes are 70 MiB
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_PIECE: Final = 32 * 1024  # of a packed file, unpacked at a time: the result fits the caches of a CPU
MANIFEST_MAX: Final = 16 * MIB  # a file of manifests; etcd itself stops at 1.5 MiB for one object
YAML_MAX: Final = 64 * MIB  # YAML takes a second and some 30 MiB of memory per MiB
NOTHING_THERE: Final = "it holds no Kubernetes object; give what 'kubectl get ... -o json' prints"
NOTHING_LISTED: Final = "a List without items is all there is: nothing to look at; give the objects as well"
_GZIP: Final = b"\x1f\x8b"
_PEEK: Final = 4096
_TOO_DEEP: Final = "it is nested too deep for a Kubernetes object; fetch or write it again"
_REMEDIES: Final[dict[type, str]] = {
    FileNotFoundError: "check its name",
    PermissionError: "give yourself the right to read it",
}


class NoObjectError(InputError):
    """A readable document that is no Kubernetes object: it names no kind."""


class Head(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The fields that say which kind an object is."""

    kind: str = ""
    api_version: str = ""


class _RawList(msgspec.Struct, rename="camel", frozen=True):
    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class Document(msgspec.Struct, frozen=True):
    """One object of an input: its position, its kind, and its content as raw JSON or as a tree."""

    where: str
    head: Head
    raw: msgspec.Raw | None = None
    tree: Any = None
    duplicates: tuple[tuple[str, int], ...] = ()

    def as_tree(self) -> Any:
        """Return the content as a tree of plain values."""
        if self.raw is None:
            return self.tree
        try:
            return msgspec.json.decode(self.raw)
        except (UnicodeDecodeError, RecursionError, msgspec.DecodeError):
            raise InputError(_at(self.where, "it is nested too deep, or not readable as UTF-8 text")) from None


_HEADS: Final = msgspec.json.Decoder(Head)
_FRONT: Final = re.compile(rb'\{\s*"apiVersion"\s*:\s*"([\w./-]+)"\s*,\s*"kind"\s*:\s*"(\w+)"\s*[,}]', re.ASCII)
"""How objects begin that an API server or kubectl has written: their kind is known without reading to their end."""
_LISTS: Final = msgspec.json.Decoder(_RawList)
_ARRAYS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def read_input(path: Path | str, limit: int = CLUSTER_MAX) -> bytes:
    """Read a file (or standard input, for "-"), unpacked if it is gzip; refuse more than `limit` bytes."""
    if not str(path):
        raise InputError("the name of a file is empty; give a file, or - for standard input")
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(path).open("rb") as stream:
                data = stream.read(limit + 1)
    except IsADirectoryError:
        raise InputError("it is a folder; give the files in it") from None
    except OSError as error:
        remedy = _REMEDIES.get(type(error), "give a file that can")
        raise InputError(f"it can't be read ({(error.strerror or str(error)).lower()}); {remedy}") from None
    except ValueError:
        raise InputError("it is not a valid file name") from None
    if data[:2] == _GZIP:
        data = _unpack(data, limit)
    if len(data) > limit:
        raise InputError(f"it is larger than {limit // MIB} MiB; split it, or leave out what is not needed")
    return _as_utf8(data)


def _unpack(data: bytes, limit: int) -> bytes:
    """Unpack gzip; refuse a file that unpacks to far more than any cluster needs."""
    most = min(limit, UNPACKED_MAX)
    found = io.BytesIO()
    try:
        while data:
            member = zlib.decompressobj(_GZIP_FORMAT)
            for start in range(0, len(data), _PIECE):  # in one call it would be collected in blocks and copied again
                found.write(member.decompress(data[start : start + _PIECE], most + 1 - found.tell()))
                if found.tell() > most:
                    remedy = "split it, or leave out what is not needed"
                    if most < limit:
                        remedy = f"if that is right, unpack it (gunzip): plain files may have {limit // MIB} MiB"
                    raise InputError(f"it unpacks to more than {most // MIB} MiB; {remedy}")
                if member.eof:
                    break
            else:
                raise InputError("the gzip file is cut off; fetch or write it again")
            data = (member.unused_data + data[start + _PIECE :]).lstrip(b"\0")  # padding, or another member
    except zlib.error:
        raise InputError("the gzip file is damaged; fetch or write it again") from None
    return found.getvalue()


def _as_utf8(data: bytes) -> bytes:
    """Remove a byte order mark and convert UTF-16, which PowerShell's redirections write."""
    if data.startswith(b"\xef\xbb\xbf"):
        return data[3:]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise InputError("it is not readable as text") from None
    return data


def split_documents(data: bytes) -> Iterator[Document]:
    """Return every object of an input, Lists taken apart, in order."""
    start = data[:_PEEK].lstrip()
    if not start and not data.strip():
        raise InputError("it is empty; it should hold what 'kubectl get ... -o json' prints")
    if b"\0" in data[:_PEEK]:
        raise InputError("it is binary, not JSON or YAML; give what 'kubectl get ... -o json' prints")
    if start[:1] in (b"{", b"["):
        yield from _json_documents(data)
    else:
        yield from _yaml_documents(data)


def is_empty_list(data: bytes) -> bool:
    """Return whether an input without objects is an empty List, as kubectl prints for an unused kind.

    Beside other files that is valid input; alone it means that there is no input.
    """
    return b"List" in data and b"items" in data


def _json_documents(data: bytes) -> Iterator[Document]:
    try:
        whole = _LISTS.decode(data)
        if whole.kind.endswith("List"):
            yield from _items(whole.items or (), whole.kind, "")
            return
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # not a List; the code below finds out what it is and what is wrong with it
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        yield from _odd_json(data, str(error))
        return
    except RecursionError:
        raise InputError(_TOO_DEEP) from None
    yield from _raw_items(msgspec.Raw(data), "")


def _odd_json(data: bytes, problem: str) -> Iterator[Document]:
    """Read several concatenated JSON documents, or YAML that begins like JSON."""
    pieces = _several(data)
    if pieces is not None:
        for number, piece in enumerate(pieces, 1):
            yield from _raw_items(msgspec.Raw(piece), f"document {number}")
        return
    if len(data) <= MIB:
        from dovetail.api.reading.yaml_tree import parse_yaml

        try:
            trees = list(parse_yaml(data))
        except InputError:
            trees = []
        if trees:
            yield from _trees(trees)
            return
    raise InputError(f"it is not JSON ({_json_problem(problem)})")


def _several(data: bytes) -> list[bytes] | None:
    import json  # only such inputs need it

    decoder = json.JSONDecoder()
    try:
        text = data.decode()
        pieces, at = [], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            _, end = decoder.raw_decode(text, at)
            pieces.append(text[at:end].encode())
            at = end
    except (ValueError, RecursionError):
        return None
    return pieces


def _json_problem(problem: str) -> str:
    if "truncated" in problem:
        return "it ends too early: cut off; fetch or write it again"
    return problem.removeprefix("JSON is malformed: ")


def _raw_items(raw: msgspec.Raw, where: str) -> Iterator[Document]:
    """Split one JSON value: a List's items, an array's items, or the object itself."""
    try:
        if bytes(memoryview(raw)[:_PEEK]).lstrip()[:1] == b"[":
            items, kind = _ARRAYS.decode(raw), ""
        else:
            head, items = _list_or_object(raw)
            if not head.kind.endswith("List"):
                yield Document(where, _checked(head, where), raw=raw)
                return
            kind = head.kind
    except RecursionError:
        raise InputError(_at(where, _TOO_DEEP)) from None
    except msgspec.ValidationError as error:
        raise InputError(_at(where, f"it is no Kubernetes object or List ({_lower(str(error))})")) from None
    except msgspec.DecodeError as error:
        raise InputError(_at(where, f"it is not JSON ({_json_problem(str(error))})")) from None
    except UnicodeDecodeError:
        raise InputError(_at(where, "it is not readable as UTF-8 text")) from None
    yield from _items(items, kind, where)


def _items(items: Sequence[msgspec.Raw], kind: str, where: str) -> Iterator[Document]:
    """Return the items of a List of this kind, or of an array."""
    owner, prefix = kind[: -len("List")], f"{where}, " if where else ""
    heads: dict[tuple[bytes, bytes], Head] = {}
    for number, item in enumerate(items, 1):
        front = _FRONT.match(item)
        if front is None:
            yield _raw_item(item, owner, f"{prefix}item {number}")
            continue
        mark = front[1], front[2]
        head = heads.get(mark)
        if head is None:
            head = heads[mark] = Head(kind=mark[1].decode(), api_version=mark[0].decode())
        yield Document(f"{prefix}item {number}", head, item)


def _list_or_object(raw: msgspec.Raw) -> tuple[Head, list[msgspec.Raw]]:
    try:
        shape = _LISTS.decode(raw)
    except msgspec.ValidationError:
        head = _HEADS.decode(raw)
        if head.kind.endswith("List"):
            raise
        return head, []  # an object of another kind whose "items" is not a list
    return Head(kind=shape.kind, api_version=shape.api_version), shape.items or []


def _raw_item(item: msgspec.Raw, owner: str, where: str) -> Document:
    try:
        head = _HEADS.decode(item)
    except msgspec.ValidationError as error:
        raise InputError(_at(where, f"it is no Kubernetes object ({_lower(str(error))})")) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(_at(where, f"it is not JSON ({_json_problem(str(error))})")) from None
    if not head.kind and owner:  # the API's own lists (kubectl get --raw) name the kind once, at the start
        head = Head(kind=owner, api_version=head.api_version)
        return Document(where, head, tree={"kind": owner} | msgspec.json.decode(item))
    return Document(where, _checked(head, where), raw=item)


def _yaml_documents(data: bytes) -> Iterator[Document]:
    from dovetail.api.reading.yaml_tree import parse_yaml  # PyYAML is slow to load, and most inputs are JSON

    if len(data) > YAML_MAX:
        raise InputError(f"it is YAML of more than {YAML_MAX // MIB} MiB; use 'kubectl get ... -o json', which is fast")
    yield from _trees(parse_yaml(data))


def _trees(documents: Any) -> Iterator[Document]:
    for number, document in enumerate(documents, 1):
        if document.tree is None:
            continue
        where = f"document {number}" + (f" (line {document.line})" if number > 1 else "")
        yield from _tree_items(document.tree, where, document.duplicates)


def _tree_items(tree: Any, where: str, duplicates: tuple[tuple[str, int], ...]) -> Iterator[Document]:
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if isinstance(tree, list) or (isinstance(kind, str) and kind.endswith("List")):
        items = tree if isinstance(tree, list) else tree.get("items") or []
        if not isinstance(items, list):
            raise InputError(_at(where, f"items is {shown(items)}; write a list"))
        owner = "" if isinstance(tree, list) else str(kind)[: -len("List")]
        for number, item in enumerate(items, 1):
            if owner and isinstance(item, dict) and "kind" not in item:
                item = {"kind": owner} | item
            yield _tree_item(item, f"{where}, item {number}", ())
    else:
        yield _tree_item(tree, where, duplicates)


def _tree_item(tree: Any, where: str, duplicates: tuple[tuple[str, int], ...]) -> Document:
    if not isinstance(tree, dict):
        if isinstance(tree, str) and tree.lstrip()[:1] == "<":
            raise InputError(_at(where, f"it is a web page or XML, {shown(tree)}; give what 'kubectl get ...' prints"))
        raise InputError(_at(where, f"it is no Kubernetes object but {shown(tree)}; write apiVersion and kind"))
    kind, version = tree.get("kind", ""), tree.get("apiVersion", "")
    if not isinstance(kind, str) or not isinstance(version, str):
        raise InputError(_at(where, "apiVersion and kind must be text"))
    return Document(where, _checked(Head(kind=kind, api_version=version), where), tree=tree, duplicates=duplicates)


def _checked(head: Head, where: str) -> Head:
    if not head.kind:
        raise NoObjectError(_at(where, "it is no Kubernetes object (there is no kind); write apiVersion and kind"))
    return head


def _at(where: str, problem: str) -> str:
    return f"{where}: {problem}" if where else problem


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
