"""`explain` names the preferences that keep a node (facts: a preference opens a new node rather than use room)."""

from dataclasses import replace

from dovetail.decide.question import Question
from dovetail.model.settings import DOVETAIL, PreferencePolicy
from dovetail.plan.explaining.node_answer import ask
from dovetail.plan.explanation import Explanation
from tests.support.golden_cases import golden_case


def test_a_preference_that_asks_for_a_new_node_is_named() -> None:
    """If pods keep preferences on a new node, explain names them; with preferencePolicy Ignore there are none."""
    case = golden_case("019")
    world = Question(cluster=case.cluster, catalogue=case.catalogue, settings=DOVETAIL, now=case.now)
    names = [node.metadata.name for node in case.cluster.nodes]
    told = {name: answer for name in names if (answer := ask(world, name)) is not None and answer.preferences}
    assert told
    name, answer = next(iter(told.items()))
    text = Explanation(question=world, answer=answer, opened=()).text
    assert "preferencePolicy: Ignore" in text
    assert answer.preferences[0] in text
    ignoring = replace(DOVETAIL, preference_policy=PreferencePolicy.IGNORE)
    again = ask(Question(cluster=case.cluster, catalogue=case.catalogue, settings=ignoring, now=case.now), name)
    assert again is not None
    assert again.preferences == ()
