import gzip
import io
import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.reading import documents
from dovetail.api.reading.decode import decode_objects, load_cluster
from dovetail.model.objects import KINDS, NodePool, Pod
from tests.paths import SHARED, needs_shared
from tests.support.api_versions import API_VERSIONS

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}


def listed(*items: Any) -> bytes:
    """Write a List, as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()


def only(data: bytes) -> Any:
    """Decode the one object of an input."""
    (item,) = decode_objects(data).objects
    return item


def test_every_kind_of_the_contract_is_read() -> None:
    """Every kind becomes a struct."""
    objects = [{"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind, "metadata": {"name": "n"}} for kind in KINDS]
    found = decode_objects(listed(*objects))
    assert [type(item) for item in found.objects] == list(KINDS.values())
    assert found.unknown_kinds == {}


def test_other_kinds_are_counted() -> None:
    """Kinds that nothing needs, and known names of other groups, are ignored and counted."""
    foreign = {"apiVersion": "container.example.com/v1", "kind": "NodePool", "metadata": {"name": "gke"}}
    found = decode_objects(listed(POD, {"apiVersion": "batch/v1", "kind": "Job"}, foreign, foreign))
    assert len(found.objects) == 1
    assert found.unknown_kinds == {"Job": 1, "NodePool": 2}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(POD).encode(),
        json.dumps(POD, indent=4).encode(),
        listed(POD),
        json.dumps([POD]).encode(),
        b"\xef\xbb\xbf" + json.dumps(POD).encode(),
        json.dumps(POD).encode("utf-16"),
        json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": POD["metadata"]}]}).encode(),
        b"# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\n---\n",
        b"kind: List\nitems:\n- kind: Pod\n  metadata: {name: a, namespace: x}\n",
        b"{kind: Pod, metadata: {name: a, namespace: x}}",
    ],
)
def test_the_forms_in_which_kubectl_prints(data: bytes, tmp_path: Path) -> None:
    """Objects, Lists, typed lists, arrays, YAML, encodings; and each of them packed."""
    for name, content in (("plain", data), ("packed", gzip.compress(data))):
        file = tmp_path / name
        file.write_bytes(content)
        (pod,) = load_cluster([file]).pods
        assert (pod.metadata.namespace, pod.metadata.name) == ("x", "a")


@pytest.mark.parametrize(
    "item",
    [
        POD,
        {"kind": "Pod", "apiVersion": "v1", "metadata": POD["metadata"]},
        {"metadata": POD["metadata"], "spec": {}, "apiVersion": "v1", "kind": "Pod"},
        {"kind": "Pod", "metadata": {**POD["metadata"], "labels": {"apiVersion": "v1", "kind": "Node"}}},  # type: ignore[dict-item]
    ],
    ids=["as the API server writes it", "kind first", "kind last", "kind in the labels"],
)
@pytest.mark.parametrize("indent", [None, 4])
def test_the_kind_of_an_item_is_found_wherever_it_stands(item: dict[str, Any], indent: int | None) -> None:
    """Items whose kind stands in front are not read to their end for it, and the others come to the same."""
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": [item, item]}, indent=indent)
    found = decode_objects(data.encode())
    assert [(type(pod), pod.metadata.name) for pod in found.objects] == [(Pod, "a")] * 2
    assert found.unknown_kinds == {}


def test_a_packed_file_of_several_parts(tmp_path: Path) -> None:
    """Packed files behind each other are one file, and padding at the end is none of it."""
    data, file = listed(POD), tmp_path / "cluster.json.gz"
    file.write_bytes(gzip.compress(data[:40]) + gzip.compress(data[40:]) + b"\0" * 512)
    assert len(load_cluster([file]).pods) == 1


@pytest.mark.parametrize("first", [0, 1, 60, 69, 70, 140, 4000])
@pytest.mark.parametrize("padding", [0, 1, 200])
def test_packed_files_are_unpacked_piece_by_piece(first: int, padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a part ends in the pieces, the whole comes out; wherever a file is cut off, that is said."""
    data = random.Random(1).randbytes(5000)
    packed = gzip.compress(data[:first]) + gzip.compress(data[first:])
    monkeypatch.setattr(documents, "_PIECE", 70)
    assert documents._unpack(packed + b"\0" * padding, 10**6) == data
    assert documents._unpack(packed, 5000) == data
    with pytest.raises(InputError, match="unpacks to more than"):
        documents._unpack(packed, 4999)
    for end in (len(packed) - 1, len(packed) - 70, 1 + len(packed) // 70 * 70 - 70):
        with pytest.raises(InputError, match="cut off"):
            documents._unpack(packed[:end], 10**6)


def test_many_json_documents_behind_each_other() -> None:
    """Documents that follow each other without a List are read too."""
    data = json.dumps(POD) + "\n" + json.dumps({"kind": "Node", "metadata": {"name": "n"}}, indent=2)
    assert [type(item).__name__ for item in decode_objects(data.encode()).objects] == ["Pod", "Node"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dash reads standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(listed(POD))))
    assert len(load_cluster(["-"]).pods) == 1


def test_the_last_of_two_files_stands(tmp_path: Path) -> None:
    """The same object in two files: the later file wins."""
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    first.write_bytes(listed(POD))
    second.write_bytes(listed(POD | {"spec": {"nodeName": "n"}}))
    (pod,) = load_cluster([first, second]).pods
    assert pod.spec.node_name == "n"


def test_nulls_are_as_if_not_there() -> None:
    """Null maps, lists and values are what Kubernetes makes of them: nothing."""
    tree = POD | {
        "metadata": POD["metadata"] | {"labels": None, "creationTimestamp": None},  # type: ignore[operator]
        "spec": {
            "containers": [{"name": "c", "resources": None, "ports": None}],
            "tolerations": None,
            "nodeName": None,
        },
        "status": None,
    }
    pod = only(listed(tree))
    assert pod.metadata.labels == {}
    assert pod.spec.tolerations == ()
    assert pod.spec.containers[0].resources.requests == {}


def test_unknown_fields_are_passed_over() -> None:
    """Fields that no rule needs don't matter, whatever they hold."""
    pod = only(listed(POD | {"spec": {"somethingNew": [{"a": 1}], "nodeName": "n"}, "extra": 5}))
    assert pod.spec.node_name == "n"


def test_a_pod_without_a_namespace_is_in_default() -> None:
    """As kubectl would create it."""
    assert only(b"kind: Pod\nmetadata: {name: a}").metadata.namespace == "default"
    assert only(b"kind: Node\nmetadata: {name: a}").metadata.namespace == ""


def test_yaml_times_are_times() -> None:
    """A YAML timestamp is as good as a quoted one."""
    pod = only(b"kind: Pod\nmetadata: {name: a, creationTimestamp: 2026-03-14T15:30:00Z}")
    assert pod.metadata.creation_timestamp == datetime(2026, 3, 14, 15, 30, tzinfo=UTC)


def test_v1beta1_becomes_v1() -> None:
    """The older form: its word for the policy, its class reference, its place for expireAfter, its kubelet."""
    pool = only(
        b"""
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: old}
spec:
  template:
    spec:
      kubelet: {maxPods: 20}
      nodeClassRef: {apiVersion: karpenter.k8s.aws/v1beta1, kind: EC2NodeClass, name: default}
      requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]
  disruption: {consolidationPolicy: WhenUnderutilized, expireAfter: 300h, budgets: [{nodes: 5}]}
"""
    )
    assert isinstance(pool, NodePool)
    assert pool.spec.disruption.consolidation_policy == "WhenEmptyOrUnderutilized"
    assert pool.spec.disruption.expire_after == "300h"
    assert pool.spec.template.spec.expire_after is None
    assert pool.spec.template.spec.node_class_ref.group == "karpenter.k8s.aws"
    assert pool.spec.disruption.budgets is not None
    assert pool.spec.disruption.budgets[0].nodes == 5


def test_an_empty_list_is_an_answer() -> None:
    """Kubectl prints a List without items where there is nothing."""
    assert decode_objects(listed()).objects == []


BAD: dict[str, tuple[bytes, str]] = {
    "truncated": (listed(POD)[:-20], "cut off"),
    "binary": (bytes(range(256)) * 20, "binary"),
    "not utf-8": (b"\x80\x81\xfe junk", "not YAML"),
    "empty": (b"", "empty"),
    "blank": (b" \n\t\n", "empty"),
    "comments only": (b"# nothing\n---\n# here\n", "no Kubernetes object"),
    "a word": (b"hello", "no Kubernetes object"),
    "numbers": (b"[1, 2]", "item 1"),
    "no kind": (b'{"metadata": {"name": "a"}}', "there is no kind"),
    "kind is a number": (b'{"kind": 5}', "kind"),
    "yaml without kind": (b"foo: 1", "there is no kind"),
    "items is no list": (b'{"kind": "List", "items": {"a": 1}}', "items"),
    "yaml items is no list": (b"kind: List\nitems: {a: 1}", "items"),
    "deep json": (b"[" * 100_000, "nested too deep"),
    "bad utf-8 inside": (b'{"kind": "Pod", "metadata": {"name": "\xff"}}', "Pod"),
    "wrong type": (listed(POD, {"kind": "Pod", "metadata": {"name": "b", "labels": {"v": 5}}}), r"labels\[v\] is 5"),
    "wrong type in yaml": (b"kind: Node\nmetadata: {name: one, labels: {on: yes}}", r"labels\[true\] is true"),
    "no key": (b'{"kind": "Node", "spec": {"taints": [{"effect": "NoSchedule"}]}}', r"spec.taints\[0\].key is missing"),
    "a date": (b"kind: Pod\nmetadata: {creationTimestamp: 2026-03-14}", "write a time with its zone"),
    "a time without a zone": (b'{"kind": "Pod", "status": {"startTime": "2026-03-14T15:30:00"}}', "with its zone"),
    "template": (b"kind: Pod\nmetadata: {name: {{ .Values.name }}}", "line 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, tmp_path: Path) -> None:
    """Every broken input names the file and what is wrong, on one line."""
    data, sentence = BAD[case]
    file = tmp_path / "input"
    file.write_bytes(data)
    with pytest.raises(InputError, match=sentence) as refusal:
        load_cluster([file])
    assert str(refusal.value).startswith(f"{file}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(listed(POD) * 50)[:-30], "cut off"),
        (gzip.compress(listed(POD))[:15] + b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "damaged|cut off"),
        (b"\x1f\x8bnot gzip at all", "damaged"),
    ],
    ids=["cut", "overwritten", "not gzip"],
)
def test_bad_gzip_is_one_sentence(data: bytes, sentence: str, tmp_path: Path) -> None:
    """Truncated and damaged packed files are distinguished from bad content."""
    file = tmp_path / "input.gz"
    file.write_bytes(data)
    with pytest.raises(InputError, match=sentence):
        load_cluster([file])


def test_files_that_are_none(tmp_path: Path) -> None:
    """A missing file, a folder and no file at all."""
    with pytest.raises(InputError, match="can't be read"):
        load_cluster([tmp_path / "missing"])
    with pytest.raises(InputError, match="folder"):
        load_cluster([tmp_path])
    with pytest.raises(InputError, match="no input"):
        load_cluster([])


@needs_shared
def test_a_captured_cluster_of_a_hundred_nodes() -> None:
    """The generated clusters decode as they are, nothing ignored."""
    path = SHARED / "bench" / "mixed-100" / "cluster.json.gz"
    cluster = load_cluster([path])
    items = json.loads(gzip.decompress(path.read_bytes()))["items"]
    assert len(cluster.pods) == sum(item["kind"] == "Pod" for item in items)
    assert len(cluster.nodes) == sum(item["kind"] == "Node" for item in items)
    assert cluster.unknown_kinds == {}
    assert all(isinstance(pod, Pod) for pod in cluster.pods)


@needs_shared
@pytest.mark.slow
def test_five_thousand_nodes_fit_into_memory() -> None:
    """70 MB of JSON with 80,000 pods, in a process of its own, in well under 1 GiB."""
    import subprocess

    path = SHARED / "bench" / "mixed-5000" / "cluster.json.gz"
    program = (
        "import pathlib, re, sys\nfrom dovetail.api.reading.decode import load_cluster\n"
        "cluster = load_cluster([sys.argv[1]])\n"
        "status = pathlib.Path('/proc/self/status')\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', status.read_text())[1] if status.exists() else 0\n"
        "print(len(cluster.pods), peak)"  # not ru_maxrss: a child starts with its parent's
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    pods, peak = map(int, done.stdout.split())
    assert pods > 79_000
    assert peak < 700 * 1024
