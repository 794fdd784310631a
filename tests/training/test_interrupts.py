"""Ctrl-C and SIGTERM while something must not be cut in two."""

import os
import signal
import subprocess
import sys

import pytest

from scrl.training.interrupts import finish_first, stop_on_sigterm, stop_once

BOTH = (signal.SIGINT, signal.SIGTERM)
WORDS = "finishing this step, then saving; three times Ctrl-C stops at once"


def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)


def work(log, *numbers, error=None):
    """A block with these signals on its way; `log` holds all that was said and done, in order."""
    with finish_first(log.append):
        for number in numbers:
            send(number)
            log.append(number)
        if error is not None:
            raise error
        log.append("done")


@pytest.fixture(autouse=True)
def _handlers_are_put_back():
    before = [signal.getsignal(number) for number in BOTH]
    yield
    assert [signal.getsignal(number) for number in BOTH] == before


INT, TERM = BOTH


@pytest.mark.parametrize(
    ("numbers", "expected", "raised"),
    [
        ((), ["done"], None),
        ((INT,), [WORDS, INT, "done"], "KeyboardInterrupt()"),  # said at once, and held back until the block is done
        ((TERM,), [WORDS, TERM, "done"], "KeyboardInterrupt()"),
        ((INT, TERM), [WORDS, INT, TERM, "done"], "KeyboardInterrupt()"),  # the second too, and not said again
        ((INT, INT, INT), [WORDS, INT, INT], "SystemExit(130)"),
    ],
)
def test_a_block_is_finished_first_but_for_the_third_interrupt(numbers, expected, raised):
    log, found = [], None
    try:
        work(log, *numbers)
    except (KeyboardInterrupt, SystemExit) as error:
        found = repr(error)
    assert (log, found) == (expected, raised)


def test_an_error_of_the_block_is_not_hidden_by_an_interrupt():
    with pytest.raises(ZeroDivisionError):
        work([], signal.SIGINT, error=ZeroDivisionError())


def test_sigterm_is_passed_on_before_it_is_ctrl_c():
    told = []
    with pytest.raises(KeyboardInterrupt), stop_on_sigterm(lambda: told.append("told")):
        send(signal.SIGTERM)
    assert told == ["told"]


def save(log, within, *later):
    """A run that is stopped within a block of its own, and then saves while other signals come."""
    with stop_once(log.append):
        try:
            within()
        finally:
            send(*later)
            log.append("saved")


SECOND = "saving first; once more stops at once"


@pytest.mark.parametrize("first", BOTH)
def test_after_the_first_nothing_cuts_what_is_saved_and_the_second_is_answered(first):
    log = []
    with pytest.raises(KeyboardInterrupt):
        save(log, lambda: send(first), signal.SIGTERM)
    assert log == [SECOND, "saved"]


def test_the_third_ends_what_is_being_saved():
    log = []
    with pytest.raises(SystemExit):
        save(log, lambda: send(signal.SIGINT), signal.SIGTERM, signal.SIGINT)
    assert log == [SECOND]


@pytest.mark.parametrize("module", ["scrl.cli", "numpy", "torch"])
def test_ctrl_c_during_the_imports_leaves_no_traceback(module):
    """Python tells on stderr what it has imported, so the signal comes at the same place on every machine."""
    command = [sys.executable, "-X", "importtime", "-m", "scrl", "plan", "--model", "embedded"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.split("|")[-1].strip() == module:
            break
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in process.communicate()[1]
    assert process.returncode == 130
