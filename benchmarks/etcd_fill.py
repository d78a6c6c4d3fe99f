"""Fills an API server with a large cluster in seconds: straight into its etcd, with the weight that real objects have.

A cluster of 80,000 pods takes a quarter of an hour through the API. etcd takes it in half a minute, and the API server
hears of it by its own watches and serves it as if it had written it. Objects of the benchmark set hold only what
decisions look at; here pods and nodes are given what a kubelet and a controller manager leave on them beside it.
"""

import base64
import gzip
import hashlib
import http.client
import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
_AT_ONCE = 100  # etcd takes at most 128 in one transaction
_STAMP = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)"')
_FOLDERS = {
    "Pod": "pods/{namespace}/{name}",
    "Node": "minions/{name}",
    "Lease": "leases/{namespace}/{name}",
    "Namespace": "namespaces/{name}",
    "PodDisruptionBudget": "poddisruptionbudgets/{namespace}/{name}",
    "DaemonSet": "daemonsets/{namespace}/{name}",
    "NodePool": "karpenter.sh/nodepools/{name}",
    "NodeClaim": "karpenter.sh/nodeclaims/{name}",
}


def read_cluster(folder: Path, now: datetime) -> list[Tree]:
    """Return the objects of a benchmark cluster, with all times shifted so that the capture is from now."""
    about = json.loads((folder / "about.json").read_text())
    late = now - datetime.fromisoformat(about["now"])

    def moved(found: re.Match[str]) -> str:
        return f'"{_stamp(datetime.fromisoformat(found[1]) + late)}"'

    text = gzip.decompress((folder / "cluster.json.gz").read_bytes()).decode()
    items: list[Tree] = json.loads(_STAMP.sub(moved, text))["items"]
    return items


def fill(port: int, items: Iterable[Tree]) -> dict[str, int]:
    """Write objects into the etcd on a local port and return how many there were of each kind."""
    counts: dict[str, int] = {}

    def pairs() -> Iterator[tuple[str, bytes]]:
        for item in items:
            counts[item["kind"]] = counts.get(item["kind"], 0) + 1
            meta = item["metadata"]
            where = _FOLDERS[item["kind"]].format(name=meta["name"], namespace=meta.get("namespace", "default"))
            yield f"/registry/{where}", json.dumps(_WEIGHTS.get(item["kind"], _as_it_is)(item)).encode()

    def write(batch: list[tuple[str, bytes]]) -> None:
        puts = [{"requestPut": {"key": _coded(key.encode()), "value": _coded(value)}} for key, value in batch]
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            line.request("POST", "/v3/kv/txn", json.dumps({"success": puts}))
            answer = line.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise RuntimeError(f"etcd: {text[:300]!r}")
        finally:
            line.close()

    with ThreadPoolExecutor(4) as pool:
        lots = _lots(pairs())
        while some := list(islice(lots, 8)):  # in batches, to limit memory
            list(pool.map(write, some))
    return counts


def _lots(pairs: Iterator[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    while lot := list(islice(pairs, _AT_ONCE)):
        yield lot


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_it_is(item: Tree) -> Tree:
    return item


def _owned(tree: Any) -> Tree:
    """Return the fields of a tree in the form of managedFields."""
    return {f"f:{key}": _owned(value) if isinstance(value, dict) else {} for key, value in tree.items()}


def _managed(item: Tree, spec_by: str, status_by: str) -> list[Tree]:
    """Return the managedFields of an object: one manager for the spec, another for the status."""
    at, version = item["metadata"].get("creationTimestamp", _stamp(datetime.now(UTC))), item["apiVersion"]
    fields = {"f:metadata": _owned(item["metadata"]), "f:spec": _owned(item.get("spec", {}))}
    for number, container in enumerate(item.get("spec", {}).get("containers", ())):
        fields["f:spec"].setdefault("f:containers", {})[f'k:{{"name":"{container["name"]}-{number}"}}'] = _owned(
            container
        )
    status: Tree = {"f:status": _owned(item.get("status", {}))}
    for entry in item.get("status", {}).get("conditions", ()):
        status["f:status"]["f:conditions"][f'k:{{"type":"{entry["type"]}"}}'] = _owned(entry)
    common = {"operation": "Update", "apiVersion": version, "time": at, "fieldsType": "FieldsV1"}
    return [
        {"manager": spec_by, **common, "fieldsV1": fields},
        {"manager": status_by, **common, "fieldsV1": status, "subresource": "status"},
    ]


def _pod(item: Tree) -> Tree:
    """Return a pod with everything a kubelet writes to it; nothing that is added changes where it can run."""
    meta, spec, status = item["metadata"], dict(item["spec"]), dict(item["status"])
    mount = {
        "name": f"kube-api-access-{meta['uid'][-5:]}",  # as an API server names it: for each pod differently
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    kept = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
    env = [{"name": f"SETTING_{number}", "value": f"value-of-setting-{number}"} for number in range(6)]
    spec["containers"] = [
        {**each, **kept, "imagePullPolicy": "IfNotPresent", "env": env, "volumeMounts": [mount]}
        for each in spec["containers"]
    ]
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    volume = {"name": mount["name"], "projected": {"sources": sources, "defaultMode": 420}}
    spec["volumes"] = [*spec.get("volumes", ()), volume]
    spec = {
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "securityContext": {},
        "schedulerName": "default-scheduler", "enableServiceLinks": True, "terminationGracePeriodSeconds": 30, **spec,
    }  # fmt: skip
    began = status.get("startTime", meta.get("creationTimestamp"))
    digest = hashlib.sha256(
        f"{meta.get('namespace')}/{meta['name']}".encode()
    ).hexdigest()  # compresses about as badly as real data
    if spec.get("nodeName") and began:
        status |= {"hostIP": "10.1.2.3", "podIP": "10.4.5.6", "podIPs": [{"ip": "10.4.5.6"}], "qosClass": "Burstable"}
        status["conditions"] = [{"lastTransitionTime": began, **each} for each in status.get("conditions", ())]
        status["containerStatuses"] = [
            {
                "name": each["name"], "ready": True, "restartCount": 0, "started": True, "image": each["image"],
                "imageID": f"registry.example/{each['image']}@sha256:{digest[::-1]}",
                "containerID": f"containerd://{digest}", "state": {"running": {"startedAt": began}},
                "lastState": {}, "resources": each.get("resources", {}),
                "allocatedResources": each.get("resources", {}).get("requests", {}),
            }
            for each in spec["containers"]
        ]  # fmt: skip
    found = {**item, "metadata": {"generation": 1, **meta}, "spec": spec, "status": status}
    found["metadata"]["managedFields"] = _managed(found, "kube-controller-manager", "kubelet")
    return found


def _node(item: Tree) -> Tree:
    """Return a node with everything a kubelet writes to it: its conditions and its images."""
    status = dict(item["status"])
    beat = _stamp(datetime.now(UTC) - timedelta(seconds=20))
    status["conditions"] = [{"lastHeartbeatTime": beat, **each} for each in status.get("conditions", ())]
    for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        status["conditions"].append(
            {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": f"kubelet has no {kind}",
             "lastHeartbeatTime": beat, "lastTransitionTime": item["metadata"]["creationTimestamp"]}
        )  # fmt: skip
    status["images"] = [
        {"names": [f"registry.example/image-{number}@sha256:{'0123456789abcdef' * 4}", f"registry.example/image-{number}:1"],
         "sizeBytes": 12345678 * number}
        for number in range(1, 31)
    ]  # fmt: skip
    status["nodeInfo"] = {
        "kernelVersion": "6.1.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.0.0",
        "kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "amd64",
        "machineID": "0" * 32, "systemUUID": "0" * 36, "bootID": "0" * 36, "kubeProxyVersion": "",
    }  # fmt: skip
    found = {**item, "metadata": dict(item["metadata"]), "status": status}
    found["metadata"]["managedFields"] = _managed(found, "karpenter", "kubelet")
    return found


def _claim(item: Tree) -> Tree:
    found = {**item, "metadata": dict(item["metadata"])}
    found["metadata"]["managedFields"] = _managed(found, "karpenter", "karpenter")
    return found


_WEIGHTS: dict[str, Callable[[Tree], Tree]] = {"Pod": _pod, "Node": _node, "NodeClaim": _claim}
