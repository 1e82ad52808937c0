"""Ctrl-C while C calls back into Python, as LLVM's compiler does in Numba."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from lmtool.cli import command_line
from lmtool.cli.command_line import main
from lmtool.system.process import AGAIN, preserve_interrupts


@ctypes.CFUNCTYPE(None)
def from_c() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(0)  # the handler runs here at the latest


@pytest.fixture(autouse=True)
def as_python_has_it() -> Iterator[None]:
    """The handler of a process in the foreground; one that a shell began in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_comes_again_after_the_callback() -> None:
    hook = sys.unraisablehook
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), preserve_interrupts() as interrupts:
        from_c()
        assert interrupts.signal
        time.sleep(100 * AGAIN)
    assert time.monotonic() - began < 100 * AGAIN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sys.unraisablehook is hook


def test_it_does_not_come_after_the_block() -> None:
    with preserve_interrupts():
        from_c()
    time.sleep(3 * AGAIN)


def test_another_handler_stays() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with preserve_interrupts() as interrupts:
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            signal.raise_signal(signal.SIGINT)
        assert not interrupts.signal
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_failure_of_what_called_back_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dispatch(words: list[str]) -> int:
        from_c()
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(command_line, "_dispatch", dispatch)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "lmtool: interrupted\n"


def test_a_failure_without_one_is_told_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dispatch(words: list[str]) -> int:
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(command_line, "_dispatch", dispatch)
    assert main(["train"]) == 1
    assert capsys.readouterr().err.endswith("RuntimeError: no compiled object yet\n")
