"""Where the coordinator of an attempt listens, as its agents read it from a file."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hpcplat.errors import InvalidError, UnavailableError
from hpcplat.files import write_whole
from hpcplat.runfolder import PRIVATE_FILE

CONNECT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Meeting:
    """A host's name, the addresses to try, the port, and the word that lets one in."""

    host: str
    addresses: tuple[str, ...]
    port: int
    word: str


def write_meeting(path: Path, meeting: Meeting) -> None:
    """Write it for the owner's eyes only.

    Written before any agent starts: a node that had looked in vain would be told for
    up to a minute by its NFS cache that there is no such file.
    """
    write_whole(path, json.dumps(asdict(meeting)) + "\n", PRIVATE_FILE)


def read_meeting(path: Path) -> Meeting:
    """Return what is written there."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return Meeting(**{**values, "addresses": tuple(values["addresses"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidError(
            f"{path} does not say where the coordinator is ({error}).",
            "See the batch log beside it.",
        ) from error


def connect(meeting: Meeting) -> tuple[socket.socket, str]:
    """Return a connection to the coordinator, and the address that led to it.

    The loopback address is tried on the coordinator's own host only: elsewhere
    somebody else might listen there, and would be told the word.
    """
    addresses = list(meeting.addresses)
    if socket.gethostname() == meeting.host:
        addresses.append("127.0.0.1")
    for address in addresses:
        try:
            place = (address, meeting.port)
            return socket.create_connection(place, CONNECT_SECONDS), address
        except OSError:
            continue  # the next address may be the one that this host can reach
    raise UnavailableError(
        f"The coordinator on {meeting.host} port {meeting.port} can't be reached.",
        "Let the compute nodes talk TCP to each other.",
    )
