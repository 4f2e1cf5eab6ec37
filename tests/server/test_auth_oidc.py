"""OIDC tokens of a local issuer: the true ones, and every kind of false one."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hpcplat.errors import UnavailableError
from server import auth_oidc
from server.auth import UnauthenticatedError
from server.auth_oidc import Issuer, Oidc

URL = "https://issuer.example"
KEYS = {name: rsa.generate_private_key(65537, 2048) for name in ("k1", "k2")}


class TestIssuer:
    """An issuer in this process: its keys can change, and it can be down."""

    __test__ = False

    def __init__(self) -> None:
        self.names = ["k1"]
        self.is_up = True
        self.asked = 0
        self.claims_to_be = URL

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self.is_up:
            return httpx.Response(503)
        self.asked += 1
        if request.url.path == "/.well-known/openid-configuration":
            about = {"issuer": self.claims_to_be, "jwks_uri": f"{URL}/jwks"}
            return httpx.Response(200, json=about)
        return httpx.Response(200, json={"keys": [public(n) for n in self.names]})


def public(name: str) -> dict[str, Any]:
    key = jwt.algorithms.RSAAlgorithm.to_jwk(KEYS[name].public_key(), as_dict=True)
    return {**key, "kid": name, "alg": "RS256", "use": "sig"}


def token(
    key: Any = None,  # noqa: ANN401
    kid: str = "k1",
    **changes: Any,  # noqa: ANN401
) -> str:
    now = int(time.time())
    claims = {
        "iss": URL,
        "aud": "hpcplat",
        "sub": "1",
        "iat": now,
        "exp": now + 300,
        "preferred_username": "person",
        **changes,
    }
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(
        claims, KEYS["k1"] if key is None else key, "RS256", headers={"kid": kid}
    )


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> TestIssuer:
    return TestIssuer()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def oidc(issuer: TestIssuer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Oidc:
    monkeypatch.setattr(auth_oidc, "_known_user", lambda name: name)
    http = httpx.Client(transport=httpx.MockTransport(issuer))
    return Oidc(Issuer(URL, "hpcplat"), http, clock)


def test_a_true_token_names_its_user(oidc: Oidc, issuer: TestIssuer) -> None:
    assert oidc.user_of(token()) == "person"
    assert oidc.user_of(token(aud=["other", "hpcplat"])) == "person"
    assert issuer.asked == 2  # its keys are kept


def unsigned() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none","kid":"k1"}').rstrip(b"=")
    return ".".join([head.decode(), token().split(".")[1], ""])


def with_public_key_as_secret() -> str:
    """The public key taken for an HS256 secret: everybody has it."""
    pem = (
        KEYS["k1"]
        .public_key()
        .public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"k1"}').rstrip(b"=").decode()
    text = f"{head}.{token().split('.')[1]}"
    digest = hmac.digest(pem, text.encode(), "sha256")
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


FORGED: dict[str, Callable[[], str]] = {
    "another key": lambda: token(KEYS["k2"]),
    "a key that nobody knows": lambda: token(KEYS["k2"], kid="k2"),
    "no key named": lambda: token(kid=""),
    "alg none": unsigned,
    "the public key as a secret": with_public_key_as_secret,
    "expired": lambda: token(exp=int(time.time()) - 60),
    "not yet": lambda: token(nbf=int(time.time()) + 600),
    "from the future": lambda: token(iat=int(time.time()) + 600),
    "a foreign audience": lambda: token(aud="grafana"),
    "no audience": lambda: token(aud=None),
    "another issuer": lambda: token(iss="https://evil.example"),
    "no end": lambda: token(exp=None),
    "nobody": lambda: token(preferred_username=None),
    "a list of names": lambda: token(preferred_username=["person"]),
    "root with a tail": lambda: token(preferred_username="root\n"),
    "a mail address": lambda: token(preferred_username="person@example.org"),
    "a changed end": lambda: token()[:-6] + "AAAAAA",
    "too long": lambda: token(x="a" * 20_000),
    "no token": lambda: "a.b.c",
    "empty parts": lambda: "..",
}


@pytest.mark.parametrize("kind", FORGED)
def test_false_tokens_are_refused(oidc: Oidc, kind: str) -> None:
    with pytest.raises(UnauthenticatedError, match="not taken"):
        oidc.user_of(FORGED[kind]())


def test_new_keys_are_found_and_strangers_make_no_flood(
    oidc: Oidc, issuer: TestIssuer, clock: Clock
) -> None:
    oidc.user_of(token())
    issuer.names = ["k2"]
    clock.now += 61
    assert oidc.user_of(token(KEYS["k2"], kid="k2")) == "person"
    asked = issuer.asked
    for _ in range(20):
        with pytest.raises(UnauthenticatedError):
            oidc.user_of(token(kid="unknown"))
    assert issuer.asked == asked
    clock.now += 3601
    issuer.names = ["k1"]
    with pytest.raises(UnauthenticatedError):  # a key that was taken back
        oidc.user_of(token(KEYS["k2"], kid="k2"))


def test_an_issuer_that_is_down_or_another_lets_nobody_in(
    oidc: Oidc, issuer: TestIssuer
) -> None:
    issuer.is_up = False
    with pytest.raises(UnavailableError):
        oidc.user_of(token())
    issuer.is_up, issuer.claims_to_be = True, "https://evil.example"
    with pytest.raises(UnavailableError, match="another issuer"):
        oidc.user_of(token())


@pytest.mark.parametrize("name", ["root", "daemon", "nobody-like-this"])
def test_only_people_with_an_account_come_in(issuer: TestIssuer, name: str) -> None:
    http = httpx.Client(transport=httpx.MockTransport(issuer))
    with pytest.raises(UnauthenticatedError, match="not taken"):
        Oidc(Issuer(URL, "hpcplat"), http).user_of(token(preferred_username=name))


def test_a_rule_maps_a_claim_to_a_user(
    issuer: TestIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_oidc, "_known_user", lambda name: name)
    http = httpx.Client(transport=httpx.MockTransport(issuer))
    rule = Issuer(URL, "hpcplat", "email", r"([a-z]+)@example\.org")
    assert Oidc(rule, http).user_of(token(email="jo@example.org")) == "jo"
    with pytest.raises(UnauthenticatedError):
        Oidc(rule, http).user_of(token(email="jo@example.org.evil.com"))
