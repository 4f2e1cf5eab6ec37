"""Which way the site submits, from its policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpcplat.errors import InvalidError
from hpcplat.sitepolicy import SitePolicy
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Scheduler
from server.identity.throughrest import RestSite, RestSlurm, signing_key
from server.identity.throughsudo import SudoSlurm
from server.preparation import Fill


def submitting(
    policy: SitePolicy, environ: Mapping[str, str]
) -> tuple[Scheduler, Fill | None]:
    """Return the scheduler, and how run folders are filled (None: by the service).

    Raises InvalidError for a way that lacks something: never another one instead.
    """
    conf = Path(environ["SLURM_CONF"]) if environ.get("SLURM_CONF") else None
    match policy.submission:
        case "sudo":
            sudo = SudoSlurm(conf, environ=environ)
            return sudo, sudo.fill
        case "rest":
            if policy.slurmrestd is None or policy.jwt_key is None:
                raise InvalidError(
                    "submission: rest needs slurmrestd and jwt_key in the policy.",
                    "Give its URL, and the file of the cluster's key.",
                )
            site = RestSite(policy.slurmrestd, Path(policy.jwt_key))
            signing_key(site.key_file)  # refused at the start, not at the first job
            rest = RestSlurm(conf, environ=environ, site=site)
            return rest, rest.fill
        case "direct":
            return CommandLine(environ=environ), None
