"""Who we are for the queue's account, and where its service is: credentials, role, region, endpoint, connections.

boto3 finds all of it (environment, profile, container and instance roles, partitions, overrides, proxies);
only the requests themselves take the leaner way of `sqs_http`.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kds_cdc_dagster.adapters.sqs_http import Connections, Dial
from kds_cdc_dagster.adapters.sqs_sign import FrozenCredentials, Target
from kds_cdc_dagster.errors import SettingsError, TransientError

if TYPE_CHECKING:
    import boto3

ROLE_SESSION = "kds-cdc"
_REGION_IN_URL = re.compile(r"//(?:[a-z0-9-]+\.)*?([a-z]{2}(?:-[a-z]+)+-\d)\.")


@dataclass(frozen=True, slots=True)
class SqsAccess:
    """Addresses and identity. Opens nothing; raises SettingsError for a queue that is not FIFO."""

    queue_url: str
    role_arn: str = ""
    """Role to assume, where the queue's account trusts a role of its own rather than our identity."""
    region: str = ""
    endpoint_url: str = ""

    def __post_init__(self) -> None:
        if not self.queue_url.endswith(".fifo"):
            raise SettingsError(
                "KDS_CDC_SQS_QUEUE_URL must be the address of a FIFO queue",
                queue_url=self.queue_url,
                hint="its name ends with .fifo; a standard queue keeps no order",
            )

    @property
    def queue_region(self) -> str | None:
        """The region in the queue's own address wins: a signature for another one is refused."""
        found = _REGION_IN_URL.search(self.queue_url)
        return found[1] if found else self.region or None

    def session(self) -> boto3.Session:
        """A boto3 session that acts as the role, renewing its credentials, or as ourselves without one."""
        import boto3
        import botocore.session
        from botocore.credentials import CredentialResolver

        ours = botocore.session.get_session()
        if self.role_arn:
            provider = _assumed_role(self.role_arn, partial(self._client_of, ours), ours.get_credentials())
            ours = botocore.session.get_session()
            ours.register_component("credential_provider", CredentialResolver([provider]))
        return boto3.Session(botocore_session=ours, region_name=self.queue_region)

    def client(self, service: str, session: boto3.Session | None = None) -> Any:
        """A boto3 client, for the endpoint's address and for S3 pointers."""
        return self._client_of((session or self.session())._session, service)  # noqa: SLF001  (the same session, typed)

    def _client_of(self, session: Any, service: str, **keys: Any) -> Any:
        return session.create_client(
            service, region_name=self.queue_region, endpoint_url=self.endpoint_url or None, **keys
        )


def _assumed_role(role_arn: str, create_client: Any, source: Any) -> Any:
    from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials

    if source is None:
        raise SettingsError("no AWS credentials to assume KDS_CDC_SQS_ROLE_ARN with", role_arn=role_arn)
    fetcher = AssumeRoleCredentialFetcher(create_client, source, role_arn, extra_args={"RoleSessionName": ROLE_SESSION})

    class Role(CredentialProvider):  # type: ignore[misc]  # botocore has no types
        METHOD = CANONICAL_NAME = "assume-role"

        def load(self) -> Any:
            return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)

    return Role()


@dataclass(frozen=True, slots=True)
class Peer:
    """An open way to the service."""

    connections: Connections
    target: Target
    _credentials: Any

    def keys(self) -> FrozenCredentials:
        """Current keys; renews a role's when they near their end. Raises SettingsError, TransientError."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._credentials is None:
            raise SettingsError("no AWS credentials found for the queue", hint="environment, profile or role")
        try:
            keys: FrozenCredentials = self._credentials.get_frozen_credentials()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500 or "Throttl" in code:
                raise TransientError("AWS credentials could not be renewed", code=code) from error
            raise SettingsError("the role cannot be assumed", code=code, hint="its trust policy") from error
        except BotoCoreError as error:
            raise TransientError("AWS credentials could not be renewed", cause=type(error).__name__) from error
        return keys


def connect(access: SqsAccess, *, connections_max: int) -> Peer:
    """Look everything up; opens no connection to the queue yet. Raises SettingsError."""
    session = access.session()
    url, region = _endpoint(access, session)
    if not (url and region):
        raise SettingsError("the queue's region is not known", hint="KDS_CDC_AWS_REGION")
    connections = Connections(_dial(url, session), idle_max=connections_max)
    return Peer(connections, Target(host=urlsplit(url).netloc, region=region), session.get_credentials())


def _endpoint(access: SqsAccess, session: boto3.Session) -> tuple[str, str | None]:
    """Address and signing region. Only an address that is not given needs a client, which takes a while to make."""
    from botocore.exceptions import BotoCoreError

    if access.endpoint_url:
        return access.endpoint_url, session.region_name
    try:
        meta = access.client("sqs", session).meta
    except BotoCoreError as error:
        raise SettingsError("the queue's region or endpoint is not known", cause=str(error)) from error
    return meta.endpoint_url, meta.region_name


def _dial(url: str, session: boto3.Session) -> Dial:
    from botocore.httpsession import get_cert_path
    from botocore.utils import get_environ_proxies

    if not url.startswith("https:"):
        return Dial(url)
    bundle = session._session.get_config_variable("ca_bundle")  # noqa: SLF001  (boto3 offers no other way)
    proxy = get_environ_proxies(url).get("https", "")
    return Dial(url, proxy, ssl.create_default_context(cafile=get_cert_path(bundle or True)))
