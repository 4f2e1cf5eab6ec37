"""sshare: the fair share of every association."""

from __future__ import annotations

from typing import Final

from hpcplat.slurm.answers import UnreadableError, clip, parse_count, read
from hpcplat.slurm.scheduler import Share
from hpcplat.slurm.tres import parse_tres

COLUMNS: Final = (
    "Cluster",
    "Account",
    "User",
    "RawShares",
    "NormShares",
    "RawUsage",
    "EffectvUsage",
    "FairShare",
    "LevelFS",
    "GrpTRESRaw",
)


def argv() -> list[str]:
    """Return the arguments that print the fair share of all users."""
    return ["sshare", "--all", "--noheader", "--parsable2", f"--format={_columns()}"]


def _columns() -> str:
    return ",".join(COLUMNS)


def parse(stdout: str) -> tuple[Share, ...]:
    """Return the shares; the depth that sshare shows by blanks is left out."""
    return tuple(
        read(_share, line.split("|")) for line in stdout.splitlines() if line.strip()
    )


def _share(row: list[str]) -> Share:
    if len(row) != len(COLUMNS):
        raise UnreadableError(f"{clip('|'.join(row))} is not a line of sshare.")
    field = dict(zip(COLUMNS, (word.strip() for word in row), strict=True))
    parent = field["RawShares"] in ("", "parent")
    return Share(
        cluster=field["Cluster"],
        account=field["Account"],
        user=field["User"],
        raw_shares=None if parent else parse_count(field["RawShares"]),
        norm_shares=_fraction(field["NormShares"]),
        raw_usage=parse_count(field["RawUsage"] or "0"),
        effective_usage=_fraction(field["EffectvUsage"]),
        fair_share=_fraction(field["FairShare"]),
        level_fs=_fraction(field["LevelFS"]),
        used_minutes=parse_tres(field["GrpTRESRaw"]),
    )


def _fraction(field: str) -> float | None:
    return float(field) if field else None
