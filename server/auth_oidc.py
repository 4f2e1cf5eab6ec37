"""OIDC bearer tokens: signed by the site's issuer, for us, and whose they are."""

from __future__ import annotations

import pwd
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import jwt

from hpcplat.errors import UnavailableError
from server.auth import UnauthenticatedError

# Signatures with a public key alone: "none" and HS256 (whose key would be the public
# one) must never be taken.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "PS256", "EdDSA")
LEEWAY: Final = 30.0  # seconds that clocks may be apart
KEPT: Final = 3600.0  # seconds that the issuer's keys are kept
AGAIN: Final = 60.0  # seconds between two questions for a key that is not known
LONGEST: Final = 16 * 1024  # bytes of a token
LEAST_UID: Final = 1000  # below are the system's own users (login.defs, UID_MIN)


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose tokens are taken, for which audience, and how a claim names a Unix user.

    ``pattern``: its one group is the user's name; the whole claim must match.
    """

    url: str
    audience: str
    claim: str = "preferred_username"
    pattern: str = r"([a-z_][a-z0-9_\-]{0,30})"


class Oidc:
    """Checks tokens of one issuer; its keys are fetched, kept, and renewed."""

    def __init__(
        self,
        issuer: Issuer,
        http: httpx.Client | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuer = issuer
        self._http = http or httpx.Client(timeout=10)
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_at = float("-inf")

    def user_of(self, token: str) -> str:
        """Return the Unix user that a token stands for.

        Raises UnauthenticatedError for a token that is forged, too old, not for us or
        of nobody here; UnavailableError while the issuer's keys can't be had.
        """
        claims = self._claims(token)
        value = claims.get(self.issuer.claim)
        match = (
            re.fullmatch(self.issuer.pattern, value) if isinstance(value, str) else None
        )
        if match is None:
            raise _refused(f"its {self.issuer.claim} names no user")
        return _known_user(match[1])

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > LONGEST:
            raise _refused("it is too long")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise _refused("its algorithm is not taken")
            key = self._key(str(header.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(header["alg"])],
                audience=self.issuer.audience,
                issuer=self.issuer.url,
                leeway=LEEWAY,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise _refused(str(error)[:200]) from error
        return claims

    def _key(self, kid: str) -> jwt.PyJWK:
        with self._lock:
            age = self._clock() - self._fetched_at
            if age > KEPT or (kid not in self._keys and age > AGAIN):
                self._fetch()
            found = self._keys.get(kid)
        if found is None:
            raise _refused("nobody knows its key")
        return found

    def _fetch(self) -> None:
        try:
            about = self._json(
                f"{self.issuer.url.rstrip('/')}/.well-known/openid-configuration"
            )
            _check_issuer(about, self.issuer.url)
            found = jwt.PyJWKSet.from_dict(self._json(str(about["jwks_uri"])))
        except (httpx.HTTPError, ValueError, KeyError, jwt.PyJWTError) as error:
            raise UnavailableError(
                f"The issuer's keys can't be had ({error}).",
                "See that it answers, and that its URL is right.",
            ) from error
        self._keys = {key.key_id: key for key in found.keys if key.key_id}
        self._fetched_at = self._clock()

    def _json(self, url: str) -> dict[str, Any]:
        answer = self._http.get(url)
        answer.raise_for_status()
        content = answer.json()
        if not isinstance(content, dict):
            raise ValueError(f"{url} is no JSON object")  # noqa: TRY004 - caught above
        return content


def _check_issuer(about: Mapping[str, Any], url: str) -> None:
    if about.get("issuer") != url:
        raise ValueError("it names another issuer")


def looks_like_one(token: str) -> bool:
    """Tell a JSON Web Token from a token of ours."""
    return token.count(".") == 2


def _known_user(name: str) -> str:
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise _refused(f"there is no Unix account {name!r} here") from error
    if entry.pw_uid < LEAST_UID:
        raise _refused(f"{name} is the system's own user")
    return name


def _refused(why: str) -> UnauthenticatedError:
    return UnauthenticatedError(f"The token is not taken: {why}.", "Log in again.")
