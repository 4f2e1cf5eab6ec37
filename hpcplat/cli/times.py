"""Times as people read them: how long ago, how long it took."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def moment(text: str | None) -> datetime | None:
    """Return the time that the API gave (ISO 8601, UTC), None for none."""
    return datetime.fromisoformat(text) if text else None


def clock(duration: timedelta) -> str:
    """Return ``1:02:03``, or ``3d 04:05`` for what takes days."""
    seconds = max(0, int(duration.total_seconds()))
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def age(when: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago, in one unit: ``12s``, ``5m``, ``3h``, ``9d``."""
    if when is None:
        return ""
    seconds = int(((now or datetime.now(UTC)) - when).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"


def local(when: datetime | None) -> str:
    """Return a time of day here, to the second."""
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S") if when else ""
