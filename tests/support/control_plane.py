"""A real control plane on loopback ports: etcd and kube-apiserver; on demand scheduler and controller manager too.

Each plane lives in a folder of its own with its own certificates, keys and data, and dies with the process that
started it. The programs come from KUBEBUILDER_ASSETS, else from .assets in the project (`make assets`).
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlencode

from tests.paths import ROOT

READY_SECONDS_MAX = 180.0
PATIENCE_SECONDS = 120.0
POLL_SECONDS = 0.05
IDLE_SECONDS_MAX = 30.0
"""A connection unused for longer is opened anew: the server closes idle ones, and a write over a closed one fails."""
PROGRAMS = ("etcd", "kube-apiserver")
PROGRAMS_OF_A_CLUSTER = (*PROGRAMS, "kube-scheduler", "kube-controller-manager")
USERS = {  # user: group
    "admin": "system:masters",
    "dovetail": "dovetail",
    "nobody": "nobodies",
    "karpenter": "system:masters",
}


class ControlPlaneError(Exception):
    """A program of the control plane did not start; says which, with the end of its log."""


def assets_folder() -> Path:
    """Return the folder that should hold the programs."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(named).resolve() if named else ROOT / ".assets"


def missing(programs: Sequence[str] = PROGRAMS) -> list[str]:
    """List the programs that are not there."""
    return [name for name in programs if not os.access(assets_folder() / name, os.X_OK)]


class ControlPlane:
    """A control plane and what a client needs to talk to it: `base_url`, `token`, `ca_path`, `kubeconfig`."""

    def __init__(self, folder: Path, apiserver_flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self._apiserver_flags = tuple(apiserver_flags)
        self.tokens = {user: secrets.token_urlsafe(24) for user in USERS}
        self.ca_path = folder / "ca.crt"
        self.kubeconfig = folder / "kubeconfig"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._port = 0
        self._etcd_port = self._peer_port = 0

    @property
    def base_url(self) -> str:
        """Return the address of the API server."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def etcd_port(self) -> int:
        """Return etcd's client port."""
        return self._etcd_port

    @property
    def token(self) -> str:
        """Return the administrator's token."""
        return self.tokens["admin"]

    def client(self, user: str = "admin", *, patience: float = PATIENCE_SECONDS) -> "Client":
        """Make a client that speaks as one of `USERS`; only admin has rights from the start."""
        return Client(self._port, self.tokens[user], self.ca_path, patience=patience)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Not at the top: tests that start no API server need no cryptography.
        from tests.support.certificates import write_certificates

        write_certificates(self.folder)
        rows = (f'{self.tokens[user]},{user},{user},"{group}"\n' for user, group in USERS.items())
        (self.folder / "tokens.csv").write_text("".join(rows))
        try:
            self._start_etcd()
            self._port = free_port()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        self.write_kubeconfig(self.kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every program, the last started first."""
        for name in reversed(list(self._processes)):
            self.kill(name, signal.SIGKILL)  # nothing here outlives the run, so nothing needs to be put in order

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End one program and wait until it is gone."""
        process = self._processes.pop(name)
        process.send_signal(how)
        process.wait()

    def start_apiserver(self) -> None:
        """Start the API server on its port, over whatever etcd holds, and wait until it is ready."""
        where = self.folder
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._port}",
            f"--cert-dir={where}",
            f"--tls-cert-file={where / 'server.crt'}",
            f"--tls-private-key-file={where / 'server.key'}",
            f"--service-account-key-file={where / 'accounts.pub'}",
            f"--service-account-signing-key-file={where / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={where / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            "--profiling=false",
            *self._apiserver_flags,
        )
        with self.client(patience=0.0) as client:
            self._wait_for("kube-apiserver", lambda: _is_ready(client))

    def restart_apiserver(self, *, down_seconds: float = 0.0, how: signal.Signals = signal.SIGKILL) -> None:
        """Take the API server away and bring it back with the same address, keys and data, as the others see it too."""
        self.kill("kube-apiserver", how)
        time.sleep(down_seconds)
        self.start_apiserver()
        self.wait_for_controllers()

    def wait_for_controllers(self) -> None:
        """Wait until the controller manager has seen all that was written so far to Deployments and ReplicaSets.

        After a restart of the API server its watches come back one by one, some after half a minute. Until then it
        acts on what it remembers, such as a ReplicaSet that is long gone: it makes pods for it.
        """
        if "kube-controller-manager" not in self.running():
            return
        labels = {"pulse": secrets.token_hex(4)}
        name = f"pulse-{labels['pulse']}"
        container = {"name": "main", "image": "none"}
        probe: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "kube-public"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        sets = "/apis/apps/v1/namespaces/kube-public/replicasets"
        with self.client() as client:

            def seen() -> bool:
                mine = client.request("GET", sets, labelSelector=f"pulse={labels['pulse']}")[1]["items"]
                return any(each.get("status", {}).get("observedGeneration") for each in mine)

            eventually(lambda: client.create(probe)[0] in (201, 409))  # its namespace comes a moment after the server
            eventually(seen)
            client.delete(probe)
            client.request("DELETE", sets, labelSelector=f"pulse={labels['pulse']}")

    def mend(self) -> None:
        """Put in order what a failed test may have left: programs that ended, and what the others remember of it."""
        for name, start in (("etcd", self._start_etcd), ("kube-apiserver", self.start_apiserver)):
            if name in self._processes and name not in self.running():
                self.kill(name)
                start()
        again = {"kube-scheduler": self.start_scheduler, "kube-controller-manager": self.start_controller_manager}
        for name, start in again.items():
            if name in self._processes:
                self.kill(name)
                start()
        self.wait_for_controllers()

    def start_scheduler(self, *flags: str) -> None:
        """Start kube-scheduler."""
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        self._start("kube-scheduler", *common, *flags)

    def start_controller_manager(self, *flags: str) -> None:
        """Start kube-controller-manager: ReplicaSets, Deployments, PDB status, garbage collection, node lifecycle."""
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--root-ca-file={self.ca_path}",
            "--allocate-node-cidrs=false",
            *flags,
        )

    def running(self) -> list[str]:
        """List the programs that are alive."""
        alive = {name for name, process in self._processes.items() if process.poll() is None}
        return [name for name in PROGRAMS_OF_A_CLUSTER if name in alive]

    def pid(self, name: str) -> int:
        """Return the process of a program that is alive."""
        return self._processes[name].pid

    def log(self, name: str) -> str:
        """Read what a program has said so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def write_kubeconfig(self, path: Path, *, user: str = "admin") -> Path:
        """Write a kubeconfig for one of `USERS`."""
        cluster = {"server": self.base_url, "certificate-authority": str(self.ca_path)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config, indent=2))  # JSON is YAML
        return path

    def _start_etcd(self) -> None:
        if not self._etcd_port:
            self._etcd_port, self._peer_port = free_port(), free_port()
        clients, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._wait_for("etcd", lambda: _healthy(self._etcd_port))

    def _start(self, name: str, *flags: str) -> None:
        command = [str(assets_folder() / name), *flags]
        if shutil.which("setpriv"):  # so that a killed test run leaves nothing behind
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def _wait_for(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            code = self._processes[name].poll()
            if code is not None:
                raise ControlPlaneError(f"{name} ended with status {code}:\n{self.log(name)[-3000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ready():
                    return
            time.sleep(POLL_SECONDS)
        raise ControlPlaneError(f"{name} was not ready after {READY_SECONDS_MAX:.0f} s:\n{self.log(name)[-3000:]}")


class Client:
    """A small blocking client of the API server: JSON in, status and JSON out, one connection kept."""

    def __init__(self, port: int, token: str, ca_path: Path, *, patience: float = PATIENCE_SECONDS) -> None:
        self._token = token
        self.patience = patience
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=60, context=ssl.create_default_context(cafile=str(ca_path))
        )
        self._used = time.monotonic()
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        """Ask for one thing, again where the server is not ready for it. JSON is decoded, all else is text.

        What the server has surely not done is asked for again: any read, and a write that it put off (429).
        """
        deadline = time.monotonic() + self.patience
        while True:
            try:
                status, answer = self._once(method, path, body, kind, query)
            except (OSError, http.client.HTTPException) as error:
                refused = isinstance(error, ConnectionRefusedError)
                if not (refused or method == "GET") or time.monotonic() > deadline:
                    raise
            else:
                put_off = status == 429 and not path.endswith("/eviction")
                away = status == 503 and method == "GET"
                if not (put_off or away) or time.monotonic() > deadline:
                    return status, answer
            time.sleep(POLL_SECONDS)

    def _once(self, method: str, path: str, body: Any, kind: str, query: dict[str, str]) -> tuple[int, Any]:
        url = path + ("?" + urlencode(query) if query else "")
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", "Content-Type": kind}
        data = None if body is None else json.dumps(body)
        if time.monotonic() - self._used > IDLE_SECONDS_MAX:
            self.close()
        try:
            self._connection.request(method, url, body=data, headers=headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        finally:
            self._used = time.monotonic()
        if response.headers.get_content_type() == "application/json":
            return response.status, json.loads(text)
        return response.status, text.decode(errors="replace")

    def path(self, api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """Find the path of a kind, or of one object of it, by asking the server what it serves."""
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        if (api_version, kind) not in self._resources:
            for each in self.request("GET", root)[1].get("resources", []):
                if "/" not in each["name"]:
                    self._resources[api_version, each["kind"]] = each["name"], each["namespaced"]
        plural, namespaced = self._resources[api_version, kind]
        middle = f"/namespaces/{namespace or 'default'}" if namespaced else ""
        return f"{root}{middle}/{plural}" + (f"/{quote(name)}" if name else "")

    def path_of(self, manifest: dict[str, Any], *, collection: bool = False) -> str:
        """Find the path of an object, or of the collection that it belongs to."""
        metadata = manifest.get("metadata", {})
        name = None if collection else metadata["name"]
        return self.path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"), name)

    def create(self, manifest: dict[str, Any], **query: str) -> tuple[int, Any]:
        """Create an object; `dryRun="All"` has it judged and not stored."""
        return self.request("POST", self.path_of(manifest, collection=True), manifest, **query)

    def apply(self, manifest: dict[str, Any]) -> Any:
        """Create or change an object by server-side apply; anything but success is an error here."""
        status, answer = self.request(
            "PATCH",
            self.path_of(manifest),
            manifest,
            kind="application/apply-patch+yaml",
            fieldManager="tests",
            force="true",
        )
        if status not in (200, 201):
            raise ControlPlaneError(f"apply of {manifest['kind']} {manifest['metadata']['name']}: {answer}")
        return answer

    def get(self, manifest: dict[str, Any]) -> Any | None:
        """Read an object again, None where it is gone."""
        status, answer = self.request("GET", self.path_of(manifest))
        return answer if status == 200 else None

    def delete(self, manifest: dict[str, Any]) -> int:
        """Delete an object."""
        return self.request("DELETE", self.path_of(manifest))[0]

    def install_crds(self, crds: Sequence[dict[str, Any]]) -> None:
        """Apply CRDs and wait until the server serves each of them."""
        for crd in crds:
            self.apply(crd)
        deadline = time.monotonic() + READY_SECONDS_MAX
        waiting = list(crds)
        while waiting and time.monotonic() < deadline:
            waiting = [crd for crd in waiting if not self._served(crd)]
            time.sleep(POLL_SECONDS)
        if waiting:
            raise ControlPlaneError(f"not served: {[crd['metadata']['name'] for crd in waiting]}")

    def _served(self, crd: dict[str, Any]) -> bool:
        spec = crd["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        stored = self.get(crd) or {}
        return conditions_of(stored).get("Established") == "True" and self.request("GET", path)[0] == 200


def conditions_of(item: dict[str, Any]) -> dict[str, str]:
    """Return what an object's conditions say, none where nobody has written a status yet."""
    return {each["type"]: each["status"] for each in (item.get("status") or {}).get("conditions") or ()}


def eventually(check: Callable[[], Any], *, seconds_max: float = 300.0) -> Any:
    """Poll until the answer is true, and return it."""
    deadline = time.monotonic() + seconds_max
    while not (answer := check()):
        assert time.monotonic() < deadline, f"still not so after {seconds_max:.0f} s"
        time.sleep(POLL_SECONDS)
    return answer


def start(folder: Path, *, attempts: int = 3, apiserver_flags: Sequence[str] = ()) -> ControlPlane:
    """Start etcd and an API server in a folder; tried again where another program was faster to take a port."""
    for attempt in range(attempts):
        plane = ControlPlane(folder / f"plane-{attempt}", apiserver_flags)
        try:
            return plane.__enter__()
        except ControlPlaneError as error:
            if attempt == attempts - 1 or "address already in use" not in str(error):
                raise
    raise AssertionError("unreachable")


@contextlib.contextmanager
def control_plane(folder: Path, *, whole: bool = False, apiserver_flags: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Run a control plane for a while; `whole` adds scheduler and controller manager."""
    plane = start(folder, apiserver_flags=apiserver_flags)
    try:
        if whole:
            plane.start_scheduler()
            plane.start_controller_manager()
            plane.wait_for_controllers()
        yield plane
    finally:
        plane.stop()


def free_port() -> int:
    """Find a port that nobody listens on, below those that the system gives to outgoing connections.

    One of these could be taken by any client between two moments, such as while an API server restarts.
    """
    while True:
        port = 15000 + secrets.randbelow(17000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _is_ready(client: Client) -> bool:
    """Return whether the server is ready and serves every custom resource that it has a definition of."""
    if client.request("GET", "/readyz")[0] != 200:
        return False
    status, answer = client.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    return status == 200 and all(
        client.request("GET", f"/apis/{each['spec']['group']}/{version['name']}/{each['spec']['names']['plural']}")[0]
        == 200
        for each in answer["items"]
        for version in each["spec"]["versions"]
        if version["served"]
    )


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    finally:
        connection.close()
