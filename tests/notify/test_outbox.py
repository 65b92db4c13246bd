"""Delivery with back-off: order, bounds, and one warning."""

import logging
import threading
import time

import pytest

from exhume.notify.outbox import Backoff, Delivery, Outbox

FAST = (0.01, 0.05)


def box(deliver, **options):
    outbox = Outbox("test", deliver, backoff=Backoff(*FAST), **options)
    outbox.start()
    return outbox


def test_in_order(eventually):
    got = []

    def deliver(entry):
        got.append(entry)
        return Delivery(True)

    outbox = box(deliver)
    for number in range(5):
        outbox.put(number)
    eventually("all are delivered", lambda: outbox.delivered == 5)
    outbox.close(1)
    assert got == [0, 1, 2, 3, 4]


def test_retried_until_it_works_with_one_warning(eventually, caplog):
    answers = iter([Delivery(False, retry=True, problem="away")] * 3 + [Delivery(True)])
    with caplog.at_level(logging.WARNING):
        outbox = box(lambda _: next(answers))
        outbox.put("x")
        eventually("it is delivered", lambda: outbox.delivered == 1)
        outbox.close(1)
    assert [record.getMessage() for record in caplog.records] == [
        "test: away; retried with back-off",
        "test: delivers again",
    ]


def test_what_is_refused_for_good_is_dropped_and_the_next_goes_on(eventually):
    outbox = box(lambda entry: Delivery(entry == "good", problem="refused"))
    outbox.put("bad")
    outbox.put("good")
    eventually("the next is delivered", lambda: outbox.delivered == 1)
    outbox.close(1)
    assert outbox.dropped == 1


def test_the_newest_are_kept_and_putting_never_waits():
    free = threading.Event()

    def deliver(_):
        free.wait(20)
        return Delivery(True)

    outbox = box(deliver, most=4)
    began = time.monotonic()
    for number in range(1000):
        outbox.put(number)
    assert time.monotonic() - began < 2
    assert outbox.pending <= 4 and outbox.dropped >= 990
    free.set()
    outbox.close(5)


def test_closing_does_not_wait_for_a_receiver_that_is_away():
    outbox = Outbox("test", lambda _: Delivery(False, retry=True, problem="away"), backoff=Backoff(60, 60))
    outbox.start()
    outbox.put("x")
    began = time.monotonic()
    outbox.close(2)
    assert time.monotonic() - began < 2.5


@pytest.mark.parametrize(("asked", "least", "most"), [(0, 1, 2), (30, 30, 30), (10_000, 600, 600)])
def test_the_wait_that_a_server_asks_for(asked, least, most):
    assert least <= Backoff(2, 300).next_s(asked) <= most


def test_waits_double_up_to_a_bound():
    backoff = Backoff(2, 16)
    waits = [backoff.next_s() for _ in range(8)]
    assert all(2**n / 2 * 2 / 2 <= wait <= min(2 ** (n + 1), 16) for n, wait in enumerate(waits[:3]))
    assert max(waits) <= 16
    backoff.reset()
    assert backoff.next_s() <= 2
