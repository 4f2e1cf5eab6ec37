"""The ways in that a site opens, and how often somebody may knock."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hpcplat.sitepolicy import SitePolicy
from server.auth_oidc import Issuer, Oidc
from server.auth_rates import Rates


def _failures() -> Rates:
    """Return how often a login may fail from one place: ten at once, then six a minute."""
    return Rates(per_second=0.1, burst=10)


@dataclass(frozen=True, slots=True)
class Doors:
    """How people show who they are, beside our own tokens and the Unix socket."""

    oidc: Oidc | None = None
    munge_socket: Path | None = None
    rates: Rates = field(default_factory=lambda: Rates(0, 0))
    failures: Rates = field(default_factory=_failures)

    @classmethod
    def of_policy(cls, policy: SitePolicy) -> Self:
        """Return the doors that the site's policy opens."""
        oidc = None
        if policy.oidc_issuer is not None:
            oidc = Oidc(
                Issuer(
                    policy.oidc_issuer,
                    policy.oidc_audience,
                    policy.oidc_claim,
                    policy.oidc_pattern,
                )
            )
        return cls(
            oidc=oidc,
            munge_socket=Path(policy.munge_socket) if policy.munge_socket else None,
            rates=Rates(policy.requests_per_second, 10 * policy.requests_per_second),
        )

    def failed(self, source: str) -> None:
        """Count a failed login; TooManyError instead of the refusal, after many.

        Whoever shows who they are is never kept out by others' failures: behind a
        proxy all come from one place.
        """
        self.failures.take(source)
