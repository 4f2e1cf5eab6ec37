"""The agents that came: lets them in by their word, hears them, and sees them go."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, Protocol

from launchers.connection import Connection
from launchers.loop import Loop
from launchers.messages import (
    Beacon,
    Ended,
    Inventory,
    Join,
    Message,
    Stacks,
    Start,
)
from launchers.ports import listening
from launchers.world import Member

HELLO_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 2.5  # five beacons
NEWS: Final = (Ended, Beacon, Inventory, Stacks)


class Listener(Protocol):
    """Who hears what agents say."""

    def joined(self, member: Member) -> Message | None:
        """Take note of an agent that came; returns what to answer it."""
        ...

    def said(self, member: Member, news: Message) -> None:
        """Take note of its news."""
        ...

    def lost(self, member: Member, reason: str) -> None:
        """Take note that it is gone, and how one can tell."""
        ...


class Roster:
    """All agents that are there; ``word`` lets one in, ``port`` is where they knock."""

    def __init__(self, loop: Loop, listener: Listener) -> None:
        self._loop, self._listener = loop, listener
        self._server = listening()
        self._members: dict[Connection, Member] = {}
        self._heard: dict[Connection, float] = {}  # the newest beacon (monotonic)
        self._silent: set[Connection] = set()
        self.word = secrets.token_hex(16)
        self.port: int = self._server.getsockname()[1]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._members)

    def open(self) -> None:
        """Let agents in from now on."""
        self._loop.watch(self._server, self._accept)

    def members(self) -> list[Member]:
        """Return all, in the order in which they came."""
        return list(self._members.values())

    def nodes(self) -> set[str]:
        """Return the names of their nodes."""
        return {member.join.node for member in self._members.values()}

    def send_all(self, message: Message) -> None:
        """Tell all."""
        for connection in tuple(self._members):
            connection.send(message)

    def send_orders(self, orders: dict[str, Start]) -> None:
        """Tell each node its own."""
        for connection, member in self._members.items():
            order = orders.get(member.join.node)
            if order:
                connection.send(order)

    def drop(self, nodes: Collection[str]) -> None:
        """Hang up on nodes; they come to the listener as lost."""
        for connection, member in tuple(self._members.items()):
            if member.join.node in nodes:
                connection.close()

    def hear_anew(self, now: float) -> None:
        """Hold no silence up to now against anybody: we were away ourselves."""
        self._heard = dict.fromkeys(self._heard, now)

    def drop_silent(self, now: float, is_excused: Callable[[str], bool]) -> None:
        """Hang up on nodes that sent no beacon for long, but for those excused."""
        for connection, heard in tuple(self._heard.items()):
            member = self._members.get(connection)
            if member is None or now - heard < SILENT_SECONDS:
                continue
            if not is_excused(member.join.node):
                self._silent.add(connection)
                connection.close()

    def _accept(self) -> None:
        sock, _ = self._server.accept()
        connection = Connection(self._loop, sock, self._take, self._lost)
        self._loop.later(HELLO_SECONDS, partial(self._turn_away, connection))

    def _turn_away(self, connection: Connection) -> None:
        """Close on a stranger that says nothing."""
        if connection not in self._members:
            connection.close()

    def _take(self, connection: Connection, message: Message) -> None:
        member = self._members.get(connection)
        if isinstance(message, Join) and member is None:
            self._admit(connection, message)
        elif isinstance(message, NEWS) and member is not None:
            if isinstance(message, Beacon):
                self._heard[connection] = time.monotonic()
            self._listener.said(member, message)
        else:  # a stranger, or one that talks out of turn
            connection.close()

    def _admit(self, connection: Connection, join: Join) -> None:
        if not hmac.compare_digest(join.word, self.word):
            connection.close()
            return
        member = self._members[connection] = Member(join, connection.peer)
        answer = self._listener.joined(member)
        if answer is not None:
            connection.send(answer)

    def _lost(self, connection: Connection) -> None:
        member = self._members.pop(connection, None)
        self._heard.pop(connection, None)
        if member is None:
            return
        node = member.join.node
        reason = f"The agent of {node} is gone: its node died, or it was killed."
        if connection in self._silent:
            reason = (
                f"{node} has been silent for {SILENT_SECONDS:g} s: it hangs, or died."
            )
        self._listener.lost(member, reason)
