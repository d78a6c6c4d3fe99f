"""A simulation's answer doesn't depend on what was simulated before on the same snapshot, not even under chance.

A round leaves out simulations whose outcome is certain, and a snapshot remembers much of what earlier ones computed.
So each question must have one answer: a function of the snapshot, of the number that chance goes by, and of the nodes
that would go.
"""

from dataclasses import replace

import pytest

from dovetail.model.settings import KARPENTER_1_15
from tests.reference.generator import Sample, sample
from tests.support.golden_answers import Answer
from tests.support.golden_kernel import Kernel

FEATURES = ("spread", "spread-policies", "schedule-anyway", "weights")
BLOCKS = 4
BLOCK = 40


def _by_chance(seed: int) -> Sample:
    made = sample(seed, FEATURES)
    marked = made.settings.marked_for_deletion_nodes
    return replace(made, settings=replace(KARPENTER_1_15, marked_for_deletion_nodes=marked, ties=1 + seed))


def _kernel(of: Sample) -> Kernel:
    return Kernel(of.cluster, of.catalogue, of.settings, of.now)


def _questions(of: Sample) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return every node alone, without another that its pods could go to, and the sample's own questions."""
    names = sorted(node.metadata.name for node in of.cluster.nodes)
    return [*(((name,), tuple(names)) for name in names), *of.questions]


def _ask(kernel: Kernel, questions: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[object, Answer]:
    return {question: kernel.simulate(*question) for question in questions}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_answers_under_chance_are_the_same_in_any_order(block: int) -> None:
    """Each query has one answer in forward order, in reverse order, and on its own snapshot."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        made = _by_chance(seed)
        questions = _questions(made)
        forwards = _ask(_kernel(made), questions)
        assert _ask(_kernel(made), questions[::-1]) == forwards, f"seed {seed}, backwards"
        for question in questions:
            assert _kernel(made).simulate(*question) == forwards[question], f"seed {seed}, {question} alone"


def test_chance_has_a_say_in_these_clusters() -> None:
    """Another seed changes some answers, so the test above compares something."""
    changed = 0
    for seed in range(BLOCK):
        made = _by_chance(seed)
        other = replace(made, settings=replace(made.settings, ties=1000 + seed))
        changed += _ask(_kernel(made), _questions(made)) != _ask(_kernel(other), _questions(made))
    assert changed >= BLOCK // 10
