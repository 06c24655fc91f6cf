"""The S3 emulator as COPY and UNLOAD see it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kds_cdc_dagster_tests.redshift.wire import Refused


@dataclass(frozen=True)
class S3Place:
    """Where the emulator answers, a bucket of the test, and (made-up) credentials."""

    endpoint_url: str
    bucket: str
    region: str = "us-east-1"
    access_key_id: str = "test"
    secret_access_key: str = "test"

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            # A connection that the emulator lets go, as on a busy machine, is no fault that a test ordered.
            config=Config(retries={"total_max_attempts": 5}, s3={"addressing_style": "path"}),
        )

    def get(self, url: str) -> bytes:
        """The object's bytes. Raises Refused in Redshift's words."""
        from botocore.exceptions import ClientError

        bucket, key = split_url(url)
        try:
            return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())
        except ClientError as error:
            raise Refused("XX000", s3_text(error.response)) from error

    def put(self, url: str, body: bytes) -> None:
        """Write an object. Raises Refused."""
        from botocore.exceptions import ClientError

        bucket, key = split_url(url)
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=body)
        except ClientError as error:
            raise Refused("XX000", s3_text(error.response)) from error

    def under(self, prefix: str) -> Iterator[str]:
        """URLs of the objects whose name begins with `prefix`: not only those in a folder of that name."""
        bucket, key = split_url(prefix)
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key):
            yield from (f"s3://{bucket}/{item['Key']}" for item in page.get("Contents", ()))

    def remove(self, urls: Iterable[str]) -> None:
        """Delete objects."""
        for url in urls:
            bucket, key = split_url(url)
            self._client.delete_object(Bucket=bucket, Key=key)

    def create_bucket(self) -> None:
        """Make `bucket`."""
        self._client.create_bucket(Bucket=self.bucket)

    def another(self) -> S3Place:
        """The same emulator with a fresh bucket."""
        place = replace(self, bucket=f"kds-{uuid.uuid4().hex[:12]}")
        place.create_bucket()
        return place

    def url(self, key: str) -> str:
        """Address of an object of `bucket`."""
        return f"s3://{self.bucket}/{key}"


_REQUEST_IDS = itertools.count(1)


def s3_text(response: Any) -> str:
    """How Redshift words an S3 error; it says CanRetry 1 even where no retry will help."""
    error, status = response["Error"], response["ResponseMetadata"]["HTTPStatusCode"]
    return (
        f"S3ServiceException:{error['Message']},Status {status},Error {error['Code']},"
        f"Rid STANDIN{next(_REQUEST_IDS):08d},CanRetry 1"
    )


def split_url(url: str) -> tuple[str, str]:
    """(bucket, key). Raises Refused."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise Refused("XX000", f"The S3 path {url} is not valid")
    return bucket, key
