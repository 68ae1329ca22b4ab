"""How much of a run's events a tracker is sent, and how often."""

from trainauto.reporting.trackers.event_table import MOST_ROWS, EventTable
from trainauto.reporting.trackers.tracker import Event


class Clock:
    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def test_rows_are_sent_after_a_minute_and_at_the_end() -> None:
    clock = Clock()
    table = EventTable(clock)
    assert not table.is_due(at_end=True)
    table.add(Event(3, "plan", "why"))
    assert not table.is_due()
    assert table.is_due(at_end=True)
    clock.now_s += 60
    assert table.is_due()
    table.note_sent()
    clock.now_s += 1000
    assert not table.is_due(at_end=True), "nothing is new"
    table.add(Event(4, "stop", "enough"))
    assert table.is_due()
    assert table.rows() == [(3, "plan", "why"), (4, "stop", "enough")]
    assert table.newest == Event(4, "stop", "enough")


def test_a_month_of_decisions_is_sent_some_hundred_times() -> None:
    clock = Clock()
    table, times = EventTable(clock), 0
    for step in range(30 * 24 * 60):
        clock.now_s += 60
        table.add(Event(step, "plan", "why"))
        if table.is_due():
            times += 1
            table.note_sent()
    assert 500 < times < 1000
    assert len(table.rows()) == MOST_ROWS + 1


def test_the_newest_stay_and_the_others_are_counted() -> None:
    table = EventTable()
    for step in range(1, MOST_ROWS + 26):
        table.add(Event(step, "plan", "why"))
    first, *others = table.rows()
    assert first == (26, "left out", "25 earlier ones; the run's own files have them")
    assert [row[0] for row in others] == list(range(26, MOST_ROWS + 26))


def test_an_event_that_is_tried_again_is_one_row() -> None:
    table, event = EventTable(), Event(1, "oom", "it ran out")
    for _ in range(3):
        table.add(event)
    table.add(Event(1, "oom", "it ran out"))  # another one, of the same words
    assert len(table.rows()) == 2
