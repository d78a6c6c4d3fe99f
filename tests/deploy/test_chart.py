"""What Helm renders from the chart: safe by default, complete with everything on, strict about typos."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from dovetail import __version__
from dovetail.api.catalogue import decode_catalogue, encode_catalogue, load_catalogue
from dovetail.api.settings import load_settings
from tests.support.chart import CHART, NAMESPACE, Tree, one, pod_specs, render, script, tool

EVERYTHING = (
    "--set=observe=false",
    "--set=catalogue=aws-live:eu-west-1",
    '--set-json=catalogueFiles={"mine.json": "{}"}',
    "--set=notifications.existingSecret=hooks",
    "--set=serviceMonitor.enabled=true",
    "--set=prometheusRule.enabled=true",
    "--set=dashboard.enabled=true",
    "--set=settings.pollInterval=30s",
    "--set=settings.pools={batch,web}",
    "--set=imagePullSecrets[0].name=pull",
    "--set=podAnnotations.team=nodes",
    "--set=serviceAccount.annotations.role=prices",
    "--set=extraArgs={--journal=/tmp/journal}",
    "--set=image.digest=sha256:" + "0" * 64,
    "--set=affinity.nodeAffinity.x=y",
)


@pytest.mark.parametrize("options", [(), EVERYTHING], ids=["defaults", "everything"])
def test_every_pod_is_confined(options: tuple[str, ...]) -> None:
    """Every pod of the chart runs without root or capabilities, read-only, with a memory limit."""
    pods = list(pod_specs(render(*options)))
    assert [kind for kind, _ in pods] == ["Deployment", "Job"]
    for _, pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all("hostPath" not in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            mounts = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
            assert [mount["mountPath"] for mount in mounts] == ["/tmp"], "only /tmp can be written"


def test_the_defaults_only_observe() -> None:
    """By default the controller only observes; there are two replicas, with probes and a PDB."""
    trees = render()
    deployment = one(trees, "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert "--observe" in container["args"]
    assert deployment["spec"]["replicas"] == 2
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    budget = one(trees, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (budget["spec"]["selector"]["matchLabels"], one(trees, "Service")["spec"]["selector"]):
        assert selector.items() <= labels.items()
    hook = one(trees, "Job")["spec"]["template"]["metadata"]["labels"]
    assert not budget["spec"]["selector"]["matchLabels"].items() <= hook.items(), "the hook is not one of them"
    kinds = {tree["kind"] for tree in trees}
    assert not kinds & {"ServiceMonitor", "PrometheusRule", "CustomResourceDefinition"}
    secret = one(trees, "Secret")
    assert secret["metadata"]["name"] == "dovetail-records"
    assert not {"data", "stringData"} & secret.keys(), "the controller makes the key: an upgrade must not change it"


def test_observing_is_switched_off_by_one_value() -> None:
    """Only `observe: false` lets the controller act."""
    assert (
        "--observe"
        not in one(render("--set=observe=false"), "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    )


def _is_hook(tree: Tree) -> bool:
    return "helm.sh/hook" in (tree["metadata"].get("annotations") or {})


def _verbs(trees: list[Tree]) -> set[str]:
    roles = [tree for tree in trees if tree["kind"] in ("Role", "ClusterRole")]
    return {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]}


def test_events_are_listed_only_where_that_is_wished() -> None:
    """`rights.neighbours` adds the right to list events, by which the descheduler is noticed, and nothing else."""
    plain = one(render("--set=observe=false"), "ClusterRole", "dovetail-acting")["rules"]
    more = one(render("--set=observe=false", "--set=rights.neighbours=true"), "ClusterRole", "dovetail-acting")["rules"]
    added = [rule for rule in more if rule not in plain]
    assert added == [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]}]
    assert len(more) == len(plain) + 1


def test_rights_come_with_acting() -> None:
    """An observe-only installation can only read; the hook that releases nodes has its own permissions."""
    for options, reads_only in (((), True), (("--set=observe=false",), False)):
        trees = render(*options)
        kept = [tree for tree in trees if not _is_hook(tree)]
        assert (_verbs(kept) <= {"get", "list", "watch"}) is reads_only
        hook = one(trees, "Job")["spec"]["template"]["spec"]["serviceAccountName"]
        made = [tree for tree in trees if _is_hook(tree) and tree["kind"] != "Job"]
        assert one(made, "ServiceAccount")["metadata"]["name"] == hook == "dovetail-release"
        assert {tree["kind"] for tree in made} == {
            "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        }  # fmt: skip
        for tree in made:
            notes = tree["metadata"]["annotations"]
            assert int(notes["helm.sh/hook-weight"]) < 0, "before the Job"
            assert "hook-succeeded" in notes["helm.sh/hook-delete-policy"]
        assert "delete" not in _verbs(made)
        assert {"nodes", "pods"} <= {name for rule in one(made, "ClusterRole")["rules"] for name in rule["resources"]}


def test_without_roles_of_the_chart_the_hook_uses_the_account_that_was_named() -> None:
    """The roles are bound to one service account only."""
    trees = render("--set=rbac.create=false", "--set=serviceAccount.create=false", "--set=serviceAccount.name=mine")
    assert {spec["serviceAccountName"] for _, spec in pod_specs(trees)} == {"mine"}
    assert not {tree["kind"] for tree in trees} & {"Role", "ClusterRole", "ServiceAccount"}


def test_who_may_connect() -> None:
    """Only the metrics port is open, to the clients that you name; outgoing traffic is limited if you configure it."""
    policy = one(render(), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"ports": [{"port": "metrics"}]}]
    labels = one(render(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    out = [{"ports": [{"port": 443}]}]
    narrow = one(
        render(
            f"--set-json=networkPolicy.metricsFrom={json.dumps(peers)}",
            f"--set-json=networkPolicy.egress={json.dumps(out)}",
        ),
        "NetworkPolicy",
    )["spec"]
    assert narrow["ingress"][0]["from"] == peers
    assert (narrow["policyTypes"], narrow["egress"]) == (["Ingress", "Egress"], out)
    assert "NetworkPolicy" not in {tree["kind"] for tree in render("--set=networkPolicy.enabled=false")}


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_where_the_metrics_listen(address: str) -> None:
    """Metrics share every address with the probes, or use an address of your choice with a separate probe port."""
    trees = render(f"--set=metrics.address={address}", "--set=metrics.port=9000")
    container = one(trees, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert f"--listen={address}:9000" in container["args"]
    probed = container["livenessProbe"]["httpGet"]["port"], container["readinessProbe"]["httpGet"]["port"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    if address:
        assert "--probes=:8081" in container["args"]
        assert (probed, ports) == (("probes", "probes"), {"metrics": 9000, "probes": 8081})
    else:
        assert not [argument for argument in container["args"] if argument.startswith("--probes")]
        assert (probed, ports) == (("metrics", "metrics"), {"metrics": 9000})
    assert one(trees, "Service")["spec"]["ports"][0]["port"] == 9000


def test_all_switches_are_on() -> None:
    """With everything on, monitor, rules, dashboard, catalogue, webhooks and settings exist and fit together."""
    trees = render(*EVERYTHING)
    assert one(trees, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= (
        one(trees, "Service")["metadata"]["labels"].items()
    )
    alerts = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    assert one(trees, "PrometheusRule")["spec"] == alerts
    shown = one(trees, "ConfigMap", "dovetail-dashboard")["data"]["dovetail.json"]
    assert json.loads(shown) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert yaml.safe_load(one(trees, "ConfigMap", "dovetail")["data"]["settings.yaml"]) == {
        "pollInterval": "30s",
        "pools": ["batch", "web"],
    }
    pod = one(trees, "Deployment")["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert {"--notify=/etc/dovetail/notify", "--catalog=aws-live:eu-west-1", "--journal=/tmp/journal"} <= {*arguments}
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert mounts.keys() == volumes == {"settings", "catalogue", "notify", "tmp"}
    files = [argument.partition("=")[2] for argument in arguments if "=/" in argument]
    assert all(file.startswith(tuple(mounts.values())) for file in files)
    assert pod["containers"][0]["image"].endswith("@sha256:" + "0" * 64)
    assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_a_catalogue_that_exists_is_mounted() -> None:
    """A region's prices are too large for values: a ConfigMap with that name is mounted in the same place."""
    trees = render("--set=catalogueConfigMap=prices", "--set=catalogue=/etc/dovetail/catalogue/prices.json.gz")
    pod = one(trees, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "catalogue", "configMap": {"name": "prices"}} in pod["volumes"]
    mount = {"name": "catalogue", "mountPath": "/etc/dovetail/catalogue", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    assert "dovetail-catalogue" not in [tree["metadata"]["name"] for tree in trees]


@pytest.mark.parametrize("claim", ["", "weeks"])
def test_recordings_have_a_volume(claim: str, tmp_path: Path) -> None:
    """One switch records into a volume of the pod, or into a folder of its own in a claim that replicas share."""
    trees = render(
        "--set=recordings.enabled=true", "--set=recordings.keep=7d", f"--set=recordings.existingClaim={claim}"
    )
    pod = one(trees, "Deployment")["spec"]["template"]["spec"]
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "recordings"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "recordings"]
    if claim:
        assert volume["persistentVolumeClaim"] == {"claimName": "weeks"}
        assert mount["subPathExpr"] == "$(POD_NAME)"
    else:
        assert volume["emptyDir"] == {"sizeLimit": "2Gi"}
    path = tmp_path / "settings.yaml"
    path.write_text(one(trees, "ConfigMap", "dovetail")["data"]["settings.yaml"])
    recordings = load_settings(path).recordings
    assert recordings is not None
    assert recordings.path == mount["mountPath"]


def test_a_regions_prices_fit_into_a_configmap() -> None:
    """The largest built-in price table, compressed, is well below the API server's limit of 1 MiB."""
    packed = gzip.compress(encode_catalogue(load_catalogue("aws:us-east-1")))
    assert len(packed) * 4 / 3 < 1 << 20
    assert decode_catalogue(packed).instance_types == load_catalogue("aws:us-east-1").instance_types


def test_secrets_are_named_never_held() -> None:
    """Webhook URLs come from an existing Secret: no value contains one, and no argument or variable shows one."""
    trees = render(*EVERYTHING)
    pod = one(trees, "Deployment")["spec"]["template"]["spec"]
    assert {"secretName": "hooks"} in [volume.get("secret") for volume in pod["volumes"]]
    assert "https://" not in json.dumps(pod["containers"])
    assert all("value" not in variable for variable in pod["containers"][0].get("env", []))


@pytest.mark.parametrize(("options", "poll_seconds"), [((), 10), (EVERYTHING, 30)])
def test_the_settings_of_the_chart_can_be_read(options: tuple[str, ...], poll_seconds: int, tmp_path: Path) -> None:
    """The controller can read the settings that the chart writes, even if they are empty."""
    path = tmp_path / "settings.yaml"
    path.write_text(one(render(*options), "ConfigMap", "dovetail")["data"]["settings.yaml"])
    assert load_settings(str(path), "dovetail").poll_interval == poll_seconds * 10**9


@pytest.mark.parametrize(
    "typing_error", ["observ=false", "image.tags=1", "replicas=two", "logLevel=loud", "image.digest=latest"]
)
def test_a_typing_error_in_a_value_is_refused(typing_error: str) -> None:
    """A value that the chart doesn't know stops Helm instead of being ignored."""
    command = [tool("helm"), "template", CHART, "--kube-version", "1.36.3", "--set", typing_error]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "schema" in done.stderr


def test_helm_has_nothing_to_say_against_it() -> None:
    """`helm lint --strict` passes."""
    done = subprocess.run([tool("helm"), "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_versions_go_together() -> None:
    """Chart, image and program have the same version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


def test_names_follow_the_release() -> None:
    """Another release in another namespace has its own names, and its role allows the Lease that it uses."""
    trees = render("--set=observe=false", name="canary", namespace="nodes")
    assert one(trees, "Deployment")["metadata"]["name"] == "canary-dovetail"
    lease, role = one(trees, "Lease"), one(trees, "Role", "canary-dovetail")
    assert one(trees, "Role", "canary-dovetail-release")["rules"] == role["rules"][:1]
    assert role["rules"][0]["resourceNames"] == [lease["metadata"]["name"]]
    assert role["metadata"]["namespace"] == lease["metadata"]["namespace"] == "nodes"
    hook = one(trees, "Job")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert hook == ["release", "--all", "--stop-controller=nodes/dovetail"]


def test_the_plain_manifests_have_no_hook() -> None:
    """Without Helm nobody would run the hook; the namespace comes first."""
    builder = script("build_manifests")
    kinds = [tree["kind"] for tree in yaml.safe_load_all(builder.OUT.read_text())]
    assert kinds[0] == "Namespace"
    assert "Job" not in kinds
    assert NAMESPACE in builder.OUT.read_text()


def test_what_features_of_karpenter_need_is_opt_in() -> None:
    """By default buffers, overlays, Services and Deployments can't be read; one value allows each of them."""
    words = ("nodeoverlays", "capacitybuffers", "deployments", "services", "podtemplates")
    roles = [tree for tree in render() if tree["kind"] in ("Role", "ClusterRole")]
    assert not any(word in rule["resources"] for role in roles for rule in role["rules"] for word in words)
    added = [tree for tree in render("--set=karpenter.features=true") if tree["metadata"]["name"].endswith("-features")]
    (role,) = [tree for tree in added if tree["kind"] == "ClusterRole"]
    assert sorted(word for rule in role["rules"] for word in rule["resources"]) == sorted(words)
    assert all(rule["verbs"] == ["list", "watch"] for rule in role["rules"])


def test_karpenters_deployment_is_opt_in() -> None:
    """One value allows one Deployment by name, in its own namespace, and sets the flag that reads it."""
    trees = render("--set=karpenter.deployment.namespace=kube-system")
    (role,) = [tree for tree in trees if tree["kind"] == "Role" and tree["metadata"]["name"].endswith("-karpenter")]
    assert role["metadata"]["namespace"] == "kube-system"
    assert role["rules"] == [
        {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["karpenter"], "verbs": ["get"]}
    ]
    (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--karpenter-deployment=kube-system/karpenter" in args
