"""Whom the engine asks what a plan will peak at, and how often."""

from trainauto.automations import Automation
from trainauto.core.decisions import PlanChange, Stop
from trainauto.core.plan import Plan
from trainauto.engine.journal import PeakPredictions

SMALL, LARGE = Plan.of(batch_size=2, lq_size=16), Plan.of(batch_size=4, lq_size=16)


class Knows(Automation):
    """Knows what each plan needs, and how often it was asked."""

    def __init__(self, **known: int) -> None:
        self.known, self.asked = {Plan.of(batch_size=int(name[1:]), lq_size=16): v for name, v in known.items()}, 0

    def expected_bytes(self, plan: Plan) -> int | None:
        self.asked += 1
        return self.known.get(plan)


def test_the_first_that_knows_is_believed_and_asked_once_a_plan() -> None:
    ignorant, knows, late = Knows(), Knows(b2=20, b4=40), Knows(b2=99)
    predictions = PeakPredictions([ignorant, knows, late])
    assert [predictions.predict(plan) for plan in (SMALL, SMALL, LARGE, LARGE, SMALL)] == [20, 20, 40, 40, 20]
    assert (ignorant.asked, knows.asked, late.asked) == (3, 3, 0)
    assert PeakPredictions([]).predict(SMALL) is None


def test_a_decision_says_what_was_expected_before_the_plan_that_is_left_ran() -> None:
    knows = Knows(b4=40)
    predictions = PeakPredictions([knows])
    assert predictions.predict(SMALL) is None
    knows.known[SMALL] = 21  # by measurement
    stop = Stop("enough")
    change, same = predictions.annotate([PlanChange(LARGE, "room", measured=22), stop], SMALL)
    assert change == PlanChange(LARGE, "room", predicted=40, measured=22, predicted_before=None)
    assert same is stop
    assert predictions.predict(SMALL) == 21  # still under way, and known by now
    assert predictions.predict(LARGE) == 40
    (back,) = predictions.annotate([PlanChange(SMALL, "no room", predicted=7)], LARGE)
    assert back == PlanChange(SMALL, "no room", predicted=7, predicted_before=40)
