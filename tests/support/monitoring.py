"""A real Prometheus that scrapes a real kube-state-metrics, each as a process (`make assets` builds them)."""

import contextlib
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from dovetail.recordings.imported import ALLOW_LIST
from tests.support.control_plane import ControlPlane, ControlPlaneError, assets_folder, free_port

RESOURCES = "pods,nodes,replicasets,statefulsets,daemonsets,deployments,jobs"


@contextlib.contextmanager
def monitoring(plane: ControlPlane, folder: Path, *, every: str, karpenter_port: int = 0) -> Iterator[str]:
    """Scrape kube-state-metrics, and Karpenter where its port is given; yield Prometheus' address."""
    programs = assets_folder()
    metrics, own, port = free_port(), free_port(), free_port()
    jobs = {"kube-state-metrics": metrics} | ({"karpenter": karpenter_port} if karpenter_port else {})
    config = [f"global: {{scrape_interval: {every}, scrape_timeout: {every}}}", "scrape_configs:"]
    for name, target in jobs.items():
        config.append(
            f"- {{job_name: {name}, honor_labels: true, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text("\n".join(config) + "\n")
    commands = [
        [
            *(str(programs / "kube-state-metrics"), "--kubeconfig", str(plane.kubeconfig)),
            *("--host", "127.0.0.1", "--port", str(metrics), "--telemetry-host", "127.0.0.1"),
            *("--telemetry-port", str(own), "--resources", RESOURCES, ALLOW_LIST),
        ],
        [
            *(str(programs / "prometheus"), f"--config.file={folder / 'prometheus.yml'}"),
            *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"),
        ],
    ]
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / f"{Path(command[0]).name}.log").open("wb"))
            dying = ["setpriv", "--pdeathsig", "KILL", "--", *command]
            process = subprocess.Popen(dying, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/-/ready", folder / "prometheus.log")
        _wait(f"http://127.0.0.1:{metrics}/healthz", folder / "kube-state-metrics.log")
        yield url


def _wait(url: str, log: Path) -> None:
    for _ in range(600):
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=2):
            return
        time.sleep(0.1)
    raise ControlPlaneError(f"{url} does not answer: {log.read_text(errors='replace')[-2000:]}")
