"""Signals that stop a run, and SIGHUP ignored under nohup."""

import signal
import threading

import pytest

from clearformer.runs.signals import Signals, StopOnInterrupt, StopSignals


@pytest.fixture(autouse=True)
def nothing_ignored():
    """The tests may run under nohup, which ignores SIGHUP, or as a shell's background job, which
    ignores SIGINT.
    """
    handlers = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize("which", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_exit_code_is_128_plus_signal(which):
    before = signal.getsignal(which)
    with StopSignals() as stopping:
        signal.raise_signal(which)
    assert stopping.exit_code() == 128 + which
    assert signal.getsignal(which) == before


def test_signals_are_recorded_in_order():
    with Signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert signals.received == [signal.SIGTERM, signal.SIGHUP]


def test_ignored_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert stopping.exit_code() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_stop_on_interrupt_raises_at_second_ctrl_c():
    before = signal.getsignal(signal.SIGTERM)
    with StopOnInterrupt() as stopping:
        assert signal.getsignal(signal.SIGTERM) == before
        signal.raise_signal(signal.SIGINT)
        assert stopping.exit_code() == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_background_job_keeps_ignoring_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopOnInterrupt() as stopping:
        signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert stopping.exit_code() == 0


def test_no_signal_handling_outside_main_thread():
    codes = []

    def run():
        with StopOnInterrupt() as stopping:
            codes.append(stopping.exit_code())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [0]
