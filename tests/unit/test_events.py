"""Events: who subscribed hears everything until it stops, and can harm nobody."""

import logging
import threading

from outlast.events import NAMES, Event, Events


def test_listener_hears_events_with_their_facts():
    """An event is its name and its facts, heard at once and in order."""
    events, heard = Events(), []
    events.emit("run_started", run="before")
    events.subscribe(heard.append)
    events.emit("run_started", run="a", token=3)
    events.emit("run_parked")
    assert heard == [Event("run_started", {"run": "a", "token": 3}), Event("run_parked", {})]


def test_unsubscribed_listener_hears_nothing_more():
    """What `subscribe` returned ends it, and may be called twice."""
    events, heard = Events(), []
    unsubscribe = events.subscribe(heard.append)
    assert events.is_heard("run_started")
    unsubscribe()
    unsubscribe()
    events.emit("run_started")
    assert heard == []
    assert not events.is_heard("run_started")


def test_listener_that_subscribed_twice_can_stop_once():
    """Each subscription is its own."""
    events, heard = Events(), []
    first, _ = events.subscribe(heard.append), events.subscribe(heard.append)
    events.emit("run_started")
    first()
    events.emit("run_started")
    assert len(heard) == 3


def test_listener_of_a_name_hears_that_one_only():
    """What nobody listens to is not even made; who wants everything still hears it."""
    events, ends, heard = Events(), [], []
    events.subscribe(ends.append, "run_ended")
    assert events.is_heard("run_ended")
    assert not events.is_heard("run_started")
    unsubscribe = events.subscribe(heard.append)
    assert events.is_heard("run_started")
    events.emit("run_started")
    events.emit("run_ended")
    unsubscribe()
    assert not events.is_heard("run_started")
    assert [event.name for event in ends] == ["run_ended"]
    assert [event.name for event in heard] == ["run_started", "run_ended"]


def test_listener_that_raises_harms_nobody(caplog):
    """Its error is logged with the event's name; the others and the engine go on."""
    events, heard = Events(), []
    events.subscribe(lambda event: 1 // 0)
    events.subscribe(heard.append)
    with caplog.at_level(logging.ERROR, "outlast"):
        events.emit("lease_lost")
    assert len(heard) == 1
    assert "a listener failed at lease_lost" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_listener_may_stop_itself_while_it_hears():
    """Who hears an event is decided when it happens."""
    events, heard = Events(), []

    def once(event):
        heard.append(event)
        unsubscribe()

    unsubscribe = events.subscribe(once)
    events.subscribe(heard.append)
    events.emit("run_started")
    events.emit("run_ended")
    assert [event.name for event in heard] == ["run_started", "run_started", "run_ended"]


def test_no_subscription_is_lost_among_threads():
    """Listeners come and go on any thread."""
    events, heard = Events(), []
    start = threading.Barrier(8)

    def come_and_go():
        start.wait()
        for _ in range(300):
            events.subscribe(heard.append)
            events.subscribe(heard.append)()

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events.emit("run_started")
    assert len(heard) == 8 * 300


def test_every_event_says_what_its_facts_are():
    """The list is what users of metrics and tests read."""
    assert all(name.isidentifier() and facts for name, facts in NAMES.items())
