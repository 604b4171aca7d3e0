"""Policies and clients in Python, for quick trials.

Times are in nanoseconds from the beginning of the run, offsets and lengths in bytes. What a policy or a client decides must depend
on what it was told and on seeds only, or results differ from run to run.
"""

from __future__ import annotations

from typing import Generator, Optional, Protocol, Union

from ._iofair import Action, Done, Drive, Process, Request

#: A client: a generator that yields actions and is sent what they took.
Client = Generator[Action, Done, None]


class Policy(Protocol):
    """What a scheduler in Python has. `complete` and `next_wakeup` may be left out."""

    def submit(self, request: Request) -> None:
        """A request arrives; the policy holds it until `dispatch` returns it."""

    def dispatch(self, now: int, in_flight: int) -> Optional[Request]:
        """The request that goes to the drive next, or None: there is none, or the policy holds them back.

        It is called again until it returns None. `in_flight` is the number of commands in the drive.
        """

    def complete(self, request: Request, now: int) -> None:
        """The drive completed a request."""

    def next_wakeup(self) -> Optional[int]:
        """When `dispatch` is to be called even if nothing else happens, or None."""


def read(offset: int, length: int) -> Action:
    """A direct read of the client's file, in bytes; multiples of 512."""
    return Action.call("read", offset, length)


def write(offset: int, length: int) -> Action:
    """A direct write to the client's file, in bytes; multiples of 512."""
    return Action.call("write", offset, length)


def trim(offset: int, length: int) -> Action:
    """Tells the drive that a part of the client's file is not needed any more."""
    return Action.call("trim", offset, length)


def flush() -> Action:
    """Makes all completed writes durable."""
    return Action.flush()


def wait(time: Union[int, str]) -> Action:
    """A pause: nanoseconds, or a text such as "2ms"."""
    return Action.wait(time)


__all__ = ["Action", "Client", "Done", "Drive", "Policy", "Process", "Request", "flush", "read", "trim", "wait", "write"]
