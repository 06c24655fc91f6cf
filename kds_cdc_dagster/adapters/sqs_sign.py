"""Signature Version 4 for one kind of request: a JSON POST to the root of one service endpoint.

botocore's signer handles every service and costs three times as much per request; a test holds this one
to the same bytes. Source: docs.aws.amazon.com, "Create a signed AWS API request".
"""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

CONTENT_TYPE = "application/x-amz-json-1.0"


class FrozenCredentials(Protocol):
    """One consistent set of keys, as botocore's `get_frozen_credentials` gives it."""

    @property
    def access_key(self) -> str:
        """Public half."""
        ...

    @property
    def secret_key(self) -> str:
        """Secret half."""
        ...

    @property
    def token(self) -> str | None:
        """Session token of temporary credentials."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: host as in the Host header, signing region, service, JSON protocol prefix."""

    host: str
    region: str
    service: str = "sqs"
    prefix: str = "AmazonSQS"


def signed_headers(
    target: Target, action: str, *, payload: bytes, credentials: FrozenCredentials, now: float
) -> dict[str, str]:
    """Headers of the request, its Authorization included. `now`: seconds since the epoch."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    headers = {"content-type": CONTENT_TYPE, "host": target.host, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    headers["x-amz-target"] = f"{target.prefix}.{action}"
    names = ";".join(headers)  # written above in alphabetical order, as the canonical form wants it
    canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"POST\n/\n\n{canonical}\n{names}\n{sha256(payload).hexdigest()}"
    scope = f"{stamp[:8]}/{target.region}/{target.service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = _keyed(_day_key(credentials.secret_key, scope), text).hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def _keyed(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


@lru_cache(maxsize=16)
def _day_key(secret_key: str, scope: str) -> bytes:
    """The signing key changes with the day and the credentials only; a handful are live at once."""
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = _keyed(key, part)
    return key
