"""Which classes a selector selects and which have anti-affinity, from classes and namespaces alone.

None of it depends on nodes, on where pods are or on time, and pods that move stay in their class. So the index of one
snapshot can usually be reused by the next (`SnapshotMemory`). Decides nothing; `scheduling.frame` uses it.
"""

from collections.abc import Iterable, Sequence

from dovetail.model.cached import cached
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.labels.syntax import ALIASES
from dovetail.model.objects import Namespace, PodAffinityTerm
from dovetail.scheduling.pods.classes import PodClass, asked_values

Holder = tuple[str, frozenset[str], LabelSelector]
"""An anti-affinity term: topology key, namespaces, selector."""


class ClassIndex:
    """Immutable; results are cached."""

    def __init__(self, classes: Sequence[PodClass], namespaces: Sequence[Namespace]) -> None:
        self.classes = classes
        self.namespaces = namespaces
        self._selected: dict[tuple[frozenset[str], LabelSelector], list[PodClass]] = {}
        self._excluding: dict[int, list[Holder]] = {}

    @cached
    def _by_label(self) -> dict[tuple[str, str, str], list[PodClass]]:
        """Return classes by namespace and label."""
        found: dict[tuple[str, str, str], list[PodClass]] = {}
        for cls in self.classes:
            for key, value in cls.labels.items():
                found.setdefault((cls.namespace, key, value), []).append(cls)
        return found

    @cached
    def _by_namespace(self) -> dict[str, list[PodClass]]:
        """Return classes by namespace."""
        found: dict[str, list[PodClass]] = {}
        for cls in self.classes:
            found.setdefault(cls.namespace, []).append(cls)
        return found

    @cached
    def asked(self) -> dict[str, frozenset[str]]:
        """Return the values that pods request, by label."""
        found: dict[str, set[str]] = {}
        for info in {cls.info.id: cls.info for cls in self.classes}.values():
            for key, values in asked_values(info.spec):
                found.setdefault(ALIASES.get(key, key), set()).update(values)
        return {key: frozenset(values) for key, values in found.items()}

    @cached
    def holders(self) -> dict[Holder, list[PodClass]]:
        """Return the classes whose pods have anti-affinity against others, by term."""
        found: dict[Holder, list[PodClass]] = {}
        for cls in self.classes:
            if not cls.info.anti_affinity:
                continue
            affinity = cls.info.spec.affinity
            assert affinity is not None
            assert affinity.pod_anti_affinity is not None
            for term in affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution:
                key = (
                    term.topology_key,
                    namespaces_of(cls, term, self.namespaces),
                    LabelSelector.compile(term.label_selector),
                )
                found.setdefault(key, []).append(cls)
        return found

    @cached
    def _by_excluded(self) -> tuple[dict[tuple[str, str, str], list[Holder]], dict[str, list[Holder]]]:
        """Return the terms of `holders` by namespace and a label of the pods that they exclude; and those without."""
        by_label: dict[tuple[str, str, str], list[Holder]] = {}
        wide: dict[str, list[Holder]] = {}
        for holder in self.holders:
            _, scope, selector = holder
            for namespace in sorted(scope):
                if selector.equal:
                    by_label.setdefault((namespace, *selector.equal[0]), []).append(holder)
                else:
                    wide.setdefault(namespace, []).append(holder)
        return by_label, wide

    def excluding(self, cls: PodClass) -> list[Holder]:
        """Return the anti-affinity terms of pods that exclude pods of a class; don't modify the list."""
        found = self._excluding.get(cls.id)
        if found is None:
            by_label, wide = self._by_excluded
            labelled = ((cls.namespace, key, value) for key, value in cls.labels.items()) if by_label else ()
            near = [holder for label in labelled for holder in by_label.get(label, ())]
            near += wide.get(cls.namespace, ())
            found = self._excluding[cls.id] = [holder for holder in near if holder[2].matches(cls.labels)]
        return found

    def selected(self, namespaces: frozenset[str], selector: LabelSelector) -> list[PodClass]:
        """Return the classes that a selector selects; don't modify the list."""
        found = self._selected.get((namespaces, selector))
        if found is None:
            found = self._selected[namespaces, selector] = list(self._select(namespaces, selector))
        return found

    def _select(self, namespaces: frozenset[str], selector: LabelSelector) -> Iterable[PodClass]:
        for namespace in sorted(namespaces):
            if selector.equal:
                near: Iterable[PodClass] = self._by_label.get((namespace, *selector.equal[0]), ())
            else:
                near = self._by_namespace.get(namespace, ())
            yield from (cls for cls in near if selector.matches(cls.labels))


def namespaces_of(cls: PodClass, term: PodAffinityTerm, namespaces: Sequence[Namespace]) -> frozenset[str]:
    """Return the namespaces that a term of a class applies to."""
    if term.namespace_selector is None:
        return frozenset(term.namespaces) if term.namespaces else frozenset((cls.namespace,))
    selector = LabelSelector.compile(term.namespace_selector)
    chosen = [n.metadata.name for n in namespaces if selector.matches(n.metadata.labels)]
    return frozenset((*chosen, *term.namespaces))
