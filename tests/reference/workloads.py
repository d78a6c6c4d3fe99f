"""Pods at random for `generator`: deployments with their rules, daemons, volumes, and pods in odd states."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from dovetail.model.objects import (
    Affinity,
    AnyObject,
    Condition,
    Container,
    ContainerPort,
    CsiVolumeSource,
    DaemonSet,
    LabelSelectorSpec,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSource,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodSpec,
    PodStatus,
    PodTemplate,
    PreferredSchedulingTerm,
    ResourceList,
    ResourceRequirements,
    SelectorRequirement,
    StorageClass,
    Toleration,
    TopologyLabelRequirement,
    TopologySelectorTerm,
    TopologySpreadConstraint,
    Volume,
    VolumeNodeAffinity,
    WeightedPodAffinityTerm,
    WorkloadSpec,
)

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
TOPOLOGIES = (ZONE, ZONE, HOST, HOST, "rack", "karpenter.sh/capacity-type")
UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


class Dice(Protocol):
    """Return whether a feature of the cluster strikes."""

    def __call__(self, feature: str, chance: float = 0.5) -> bool:
        """Rolls."""


class Workloads:
    """Makes the pods of a cluster and what belongs to them."""

    def __init__(
        self, rng: random.Random, has: Dice, nodes: Sequence[str], zones: Sequence[str], now: datetime, *, apps: int
    ) -> None:
        self._apps = apps
        self.rng = rng
        self.has = has
        self.nodes = nodes
        self.zones = zones
        self.now = now
        self.objects: list[AnyObject] = []

    def build(self) -> list[AnyObject]:
        """Return all objects."""
        if self.has("volumes", 1.0):
            self._storage_classes()
        for index in range(self.rng.randint(1, self._apps)):
            self._deployment(f"app-{index}")
        if self.has("daemons", 1.0):
            for index in range(self.rng.randint(1, 2)):
                self._daemon_set(f"daemon-{index}")
        if self.has("pdbs", 0.8):
            self._pdb()
        return self.objects

    # Deployments

    def _deployment(self, app: str) -> None:
        rng = self.rng
        namespace = rng.choice(("default", "default", "prod"))
        labels = {"app": app, "tier": rng.choice(("web", "db")), "version": rng.choice(("v1", "v2"))}
        spec = self._spec(app, namespace)
        kind = rng.choice(("ReplicaSet", "ReplicaSet", "StatefulSet", "Job", ""))
        for replica in range(rng.randint(1, 6)):
            name = f"{app}-{replica}"
            own = dict(labels)
            if rng.random() < 0.2:
                own["version"] = "v3"
            meta = ObjectMeta(
                name=name,
                namespace=namespace,
                uid=f"uid-{rng.randint(0, 10**9):09d}-{name}",
                labels=own,
                creation_timestamp=self.now - timedelta(seconds=rng.choice((60, 60, 3600))),
                owner_references=_owner(kind, app),
            )
            self.objects.append(self._pod(meta, self._with_volumes(spec, name, namespace)))

    def _pod(self, meta: ObjectMeta, spec: PodSpec) -> Pod:
        rng = self.rng
        if not self.nodes or rng.random() < (0.6 if self.has("pending", 1.0) else 0.15):
            return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Pending", conditions=(UNSCHEDULABLE,)))
        fields = {field: getattr(spec, field) for field in spec.__struct_fields__}
        bound = PodSpec(**(fields | {"node_name": rng.choice(self.nodes)}))
        status = PodStatus(phase="Running", start_time=self.now - timedelta(minutes=10))
        if not self.has("odd-pods", 0.3):
            return Pod(metadata=meta, spec=bound, status=status)
        return self._odd(meta, bound, status)

    def _odd(self, meta: ObjectMeta, spec: PodSpec, status: PodStatus) -> Pod:
        odd = self.rng.choice(("terminating", "done", "mirror", "protected", "protected-for-a-while", "starting"))
        fields = {field: getattr(meta, field) for field in meta.__struct_fields__}
        match odd:
            case "terminating":
                meta = ObjectMeta(**(fields | {"deletion_timestamp": self.now}))
            case "done":
                status = PodStatus(phase=self.rng.choice(("Succeeded", "Failed")))
            case "mirror":
                meta = ObjectMeta(**(fields | {"owner_references": (OwnerReference(kind="Node", api_version="v1"),)}))
            case "protected":
                meta = ObjectMeta(**(fields | {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}))
            case "protected-for-a-while":
                text = self.rng.choice(("5m", "1h", "nonsense"))
                meta = ObjectMeta(**(fields | {"annotations": {"karpenter.sh/do-not-disrupt": text}}))
            case _:
                status = PodStatus(phase="Pending")
        return Pod(metadata=meta, spec=spec, status=status)

    def _spec(self, app: str, namespace: str) -> PodSpec:
        rng = self.rng
        containers = [self._container("main", rng.choice(("100m", "250m", "500m", "1", "2", "3500m")))]
        inits: list[Container] = []
        if self.has("init-containers", 0.7):
            inits = [self._container(f"init-{i}", rng.choice(("250m", "1", "3"))) for i in range(rng.randint(1, 2))]
            always = "Always" if rng.random() < 0.5 else None
            inits.append(Container(name="last", resources=inits[0].resources, restart_policy=always))
            rng.shuffle(inits)
        overhead: ResourceList = {"cpu": "250m", "memory": "64Mi"} if self.has("init-containers", 0.3) else {}
        whole = ResourceRequirements(requests={"cpu": "1500m"}) if self.has("init-containers", 0.2) else None
        return PodSpec(
            containers=tuple(containers),
            init_containers=tuple(inits),
            overhead=overhead,
            resources=whole,
            node_selector=self._node_selector(),
            affinity=self._affinity(app, namespace),
            tolerations=self._tolerations(),
            topology_spread_constraints=self._spread(app),
        )

    def _container(self, name: str, cpu: str) -> Container:
        rng = self.rng
        requests: dict[str, str | int | float] = {"cpu": cpu, "memory": rng.choice(("64Mi", "256Mi", "1Gi", "2Gi"))}
        if self.has("extended-resources", 0.3):
            requests["example.com/gpu"] = rng.choice((0, 1, 1, 2))
        if self.has("extended-resources", 0.1):
            requests["hugepages-2Mi"] = "256Mi"
        ports: list[ContainerPort] = []
        if self.has("host-ports", 0.5):
            address = rng.choice(("", "", "10.0.0.1", "::", "0.0.0.0"))
            protocol = rng.choice(("TCP", "TCP", "UDP"))
            ports.append(ContainerPort(host_port=rng.choice((80, 81)), host_ip=address, protocol=protocol))
        return Container(name=name, resources=ResourceRequirements(requests=requests), ports=tuple(ports))

    def _node_selector(self) -> dict[str, str]:
        if not self.has("selectors", 0.5):
            return {}
        choices = (
            {ZONE: self.rng.choice(tuple(self.zones))},
            {"kubernetes.io/arch": self.rng.choice(("amd64", "arm64"))},
            {"team": self.rng.choice(("one", "two"))},
            {"rack": self.rng.choice(("r1", "r2", "r3"))},
            {"example.com/family": "c"},
            {"karpenter.sh/capacity-type": "spot"},
            {"failure-domain.beta.kubernetes.io/zone": "zone-a"},
            {HOST: "node-0"},
            {"karpenter.sh/nodepool": "blue"},
        )
        return self.rng.choice(choices)

    def _tolerations(self) -> tuple[Toleration, ...]:
        if not self.has("taints", 0.6):
            return ()
        choices = (
            (Toleration(key="dedicated", operator="Exists"),),
            (Toleration(key="dedicated", operator="Equal", value="x", effect="NoSchedule"),),
            (Toleration(key="dedicated", value="y"),),
            (Toleration(operator="Exists"),),
            (Toleration(key="dedicated", operator="Exists", effect="NoExecute"),),
        )
        return self.rng.choice(choices)

    # Node affinity

    def _expression(self) -> SelectorRequirement:
        rng = self.rng
        choices = [
            SelectorRequirement(key=ZONE, operator="In", values=tuple(rng.sample(tuple(self.zones), 2))),
            SelectorRequirement(key=ZONE, operator="NotIn", values=(rng.choice(tuple(self.zones)),)),
            SelectorRequirement(key="example.com/family", operator="In", values=(rng.choice("cm"),)),
            SelectorRequirement(key="team", operator="In", values=("one",)),
            SelectorRequirement(key="team", operator="DoesNotExist"),
            SelectorRequirement(key="rack", operator="Exists"),
            SelectorRequirement(key="rack", operator="NotIn", values=("r1",)),
            SelectorRequirement(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),
        ]
        if self.has("operators", 1.0):
            choices += [
                SelectorRequirement(key="example.com/size", operator="Gt", values=("2",)),
                SelectorRequirement(key="example.com/size", operator="Lt", values=("8",)),
                SelectorRequirement(key="example.com/size", operator="Gt", values=("4",)),
                SelectorRequirement(key="example.com/size", operator="NotIn", values=("4", "8")),
                SelectorRequirement(key="example.com/family", operator="Exists"),
            ]
        return rng.choice(choices)

    def _term(self) -> NodeSelectorTerm:
        return NodeSelectorTerm(match_expressions=tuple(self._expression() for _ in range(self.rng.choice((1, 1, 2)))))

    def _affinity(self, app: str, namespace: str) -> Affinity | None:
        node, near, far = self._node_affinity(), self._pod_affinity(app, namespace), self._pod_anti_affinity(app)
        if node is None and near is None and far is None:
            return None
        return Affinity(node_affinity=node, pod_affinity=near, pod_anti_affinity=far)

    def _node_affinity(self) -> NodeAffinity | None:
        required = None
        if self.has("affinity-terms", 0.6) or self.has("operators", 0.5):
            terms = tuple(self._term() for _ in range(self.rng.choice((1, 2, 2, 3))))
            required = NodeSelector(node_selector_terms=terms)
        preferred: list[PreferredSchedulingTerm] = []
        if self.has("preferences", 0.5):
            preferred = [
                PreferredSchedulingTerm(weight=self.rng.choice((1, 10, 10, 100)), preference=self._term())
                for _ in range(self.rng.randint(1, 3))
            ]
        if required is None and not preferred:
            return None
        return NodeAffinity(
            required_during_scheduling_ignored_during_execution=required,
            preferred_during_scheduling_ignored_during_execution=tuple(preferred),
        )

    # Pod affinity and spread

    def _selector(self, app: str) -> LabelSelectorSpec | None:
        rng = self.rng
        choices = (
            LabelSelectorSpec(match_labels={"app": app}),
            LabelSelectorSpec(match_labels={"app": app}),
            LabelSelectorSpec(match_labels={"app": app}),
            LabelSelectorSpec(match_labels={"tier": rng.choice(("web", "db"))}),
            LabelSelectorSpec(match_labels={"app": "app-0"}),
            LabelSelectorSpec(
                match_expressions=(SelectorRequirement(key="version", operator="NotIn", values=("v2",)),)
            ),
            LabelSelectorSpec(match_expressions=(SelectorRequirement(key="app", operator="Exists"),)),
            LabelSelectorSpec(),
            None,
        )
        return rng.choice(choices)

    def _pod_term(self, app: str) -> PodAffinityTerm:
        rng = self.rng
        namespaces = ("default",) if rng.random() < 0.2 else ()
        chosen = None
        if rng.random() < 0.2:
            chosen = rng.choice((LabelSelectorSpec(), LabelSelectorSpec(match_labels={"kind": "special"})))
        return PodAffinityTerm(
            topology_key=rng.choice(TOPOLOGIES),
            label_selector=self._selector(app),
            namespaces=namespaces,
            namespace_selector=chosen,
        )

    def _weighted(self, app: str) -> tuple[WeightedPodAffinityTerm, ...]:
        if not self.has("preferences", 0.4):
            return ()
        return tuple(
            WeightedPodAffinityTerm(weight=self.rng.choice((1, 50, 50)), pod_affinity_term=self._pod_term(app))
            for _ in range(self.rng.randint(1, 2))
        )

    def _pod_affinity(self, app: str, namespace: str) -> PodAffinity | None:
        required = (self._pod_term(app),) if self.has("pod-affinity", 0.6) else ()
        preferred = self._weighted(app)
        return (
            PodAffinity(
                required_during_scheduling_ignored_during_execution=required,
                preferred_during_scheduling_ignored_during_execution=preferred,
            )
            if required or preferred
            else None
        )

    def _pod_anti_affinity(self, app: str) -> PodAffinity | None:
        required = (self._pod_term(app),) if self.has("anti-affinity", 0.6) else ()
        preferred = self._weighted(app)
        return (
            PodAffinity(
                required_during_scheduling_ignored_during_execution=required,
                preferred_during_scheduling_ignored_during_execution=preferred,
            )
            if required or preferred
            else None
        )

    def _spread(self, app: str) -> tuple[TopologySpreadConstraint, ...]:
        hard = [
            self._constraint(app, "DoNotSchedule") for _ in range(self.rng.randint(1, 2)) if self.has("spread", 0.6)
        ]
        soft = [
            self._constraint(app, "ScheduleAnyway")
            for _ in range(self.rng.randint(1, 2))
            if self.has("schedule-anyway", 0.6)
        ]
        both = [*hard, *soft]
        self.rng.shuffle(both)
        return tuple(both)

    def _constraint(self, app: str, when: str) -> TopologySpreadConstraint:
        rng = self.rng
        with_policies = self.has("spread-policies", 0.7)
        keys = ("version",) if with_policies and rng.random() < 0.3 else ()
        selector = self._selector(app)
        return TopologySpreadConstraint(
            topology_key=rng.choice(TOPOLOGIES),
            max_skew=rng.choice((1, 1, 2)),
            when_unsatisfiable=when,
            label_selector=LabelSelectorSpec(match_labels={"app": app}) if keys and selector is None else selector,
            min_domains=rng.choice((None, 2, 3, 5)) if with_policies else None,
            node_affinity_policy=rng.choice((None, "Honor", "Ignore")) if with_policies else None,
            node_taints_policy=rng.choice((None, "Honor", "Ignore")) if with_policies else None,
            match_label_keys=keys,
        )

    # Daemons

    def _daemon_set(self, name: str) -> None:
        rng = self.rng
        spec = PodSpec(
            containers=(self._container("main", rng.choice(("100m", "500m", "1"))),),
            node_selector=self._node_selector() if rng.random() < 0.3 else {},
            affinity=Affinity(node_affinity=self._node_affinity()) if rng.random() < 0.5 else None,
            tolerations=(Toleration(operator="Exists"),) if rng.random() < 0.6 else self._tolerations(),
        )
        meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
        self.objects.append(DaemonSet(metadata=meta, spec=WorkloadSpec(template=PodTemplate(spec=spec))))
        for node in self.nodes:
            if rng.random() < 0.5:
                self._daemon_pod(name, node, spec)

    def _daemon_pod(self, name: str, node: str, spec: PodSpec) -> None:
        rng = self.rng
        container = self._container("main", "250m") if rng.random() < 0.3 else spec.containers[0]
        fields = {field: getattr(spec, field) for field in spec.__struct_fields__}
        owner = OwnerReference(kind="DaemonSet", name=name, uid=f"uid-{name}", api_version="apps/v1", controller=True)
        meta = ObjectMeta(
            name=f"{name}-{node}",
            namespace="default",
            uid=f"uid-{name}-{node}",
            labels={"app": name},
            creation_timestamp=self.now - timedelta(seconds=rng.choice((60, 120, 180))),
            owner_references=(owner,),
        )
        bound = PodSpec(**(fields | {"node_name": node, "containers": (container,), "affinity": None}))
        self.objects.append(Pod(metadata=meta, spec=bound, status=PodStatus(phase="Running")))

    # Volumes and budgets

    def _storage_classes(self) -> None:
        zone_a = TopologyLabelRequirement(key=ZONE, values=("zone-a",))
        others = TopologyLabelRequirement(key=ZONE, values=("zone-b", "zone-c"))
        terms = [
            TopologySelectorTerm(match_label_expressions=(zone_a,)),
            TopologySelectorTerm(match_label_expressions=(others,)),
        ]
        for name, allowed in (("anywhere", []), ("zonal", terms[:1]), ("either", terms)):
            self.objects.append(
                StorageClass(
                    metadata=ObjectMeta(name=name),
                    provisioner=self.rng.choice(("ebs.csi.aws.com", "kubernetes.io/aws-ebs")),
                    volume_binding_mode="WaitForFirstConsumer",
                    allowed_topologies=tuple(allowed),
                )
            )

    def _with_volumes(self, spec: PodSpec, name: str, namespace: str) -> PodSpec:
        if not self.has("volumes", 0.6):
            return spec
        volumes = []
        for index in range(self.rng.choice((1, 1, 2))):
            claim = f"{name}-data-{index}"
            source = PersistentVolumeClaimSource(claim_name=claim)
            volumes.append(Volume(name=f"data-{index}", persistent_volume_claim=source))
            if self.rng.random() < 0.9:
                self._claim(claim, namespace)
        fields = {field: getattr(spec, field) for field in spec.__struct_fields__}
        return PodSpec(**(fields | {"volumes": tuple(volumes)}))

    def _claim(self, name: str, namespace: str) -> None:
        rng = self.rng
        bound = rng.random() < 0.6
        self.objects.append(
            PersistentVolumeClaim(
                metadata=ObjectMeta(
                    name=name,
                    namespace=namespace,
                    annotations={"pv.kubernetes.io/bind-completed": "yes"} if bound and rng.random() < 0.9 else {},
                ),
                spec=PersistentVolumeClaimSpec(
                    storage_class_name=rng.choice(("anywhere", "zonal", "either", "missing", None)),
                    volume_name=f"pv-{namespace}-{name}" if bound else "",
                ),
            )
        )
        if not bound or rng.random() < 0.1:
            return
        zones = [SelectorRequirement(key=ZONE, operator="In", values=(zone,)) for zone in self.zones]
        terms = [NodeSelectorTerm(match_expressions=(zone,)) for zone in rng.sample(zones, rng.choice((1, 1, 2)))]
        local = rng.random() < 0.2
        if local:
            here = SelectorRequirement(key=HOST, operator="In", values=("node-0",))
            terms = [NodeSelectorTerm(match_expressions=(here, *rng.choice(((), tuple(zones[:1])))))]
        self.objects.append(
            PersistentVolume(
                metadata=ObjectMeta(name=f"pv-{namespace}-{name}"),
                spec=PersistentVolumeSpec(
                    csi=CsiVolumeSource(driver="ebs.csi.aws.com") if rng.random() < 0.7 else None,
                    aws_elastic_block_store={} if rng.random() < 0.3 else None,
                    local={} if local else None,
                    node_affinity=VolumeNodeAffinity(required=NodeSelector(node_selector_terms=tuple(terms))),
                ),
            )
        )

    def _pdb(self) -> None:
        most, least = self.rng.choice(((0, None), ("0%", None), (1, None), (None, "100%"), (None, 1), (None, "50%")))
        spec = PodDisruptionBudgetSpec(
            selector=self.rng.choice((LabelSelectorSpec(match_labels={"app": "app-0"}), LabelSelectorSpec(), None)),
            max_unavailable=most,
            min_available=least,
            unhealthy_pod_eviction_policy=self.rng.choice((None, "AlwaysAllow")),
        )
        self.objects.append(PodDisruptionBudget(metadata=ObjectMeta(name="pdb", namespace="default"), spec=spec))


def _owner(kind: str, name: str) -> tuple[OwnerReference, ...]:
    if not kind:
        return ()
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return (OwnerReference(kind=kind, name=name, uid=f"owner-{name}", api_version=version, controller=True),)
