"""Bodies that lie in S3: the convention of the SQS extended clients (Java, Python) for messages too large.

The message is a JSON array of a class name and `{"s3BucketName", "s3Key"}`. The object is left in its
bucket: a message whose delete failed comes again and needs it, so the bucket's lifecycle rule removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from kds_cdc_dagster.errors import TransientError

_NAMES = (
    "software.amazon.payloadoffloading.PayloadS3Pointer",
    "com.amazon.sqs.javamessaging.MessageS3Pointer",
)
_MARKS = tuple(f'["{name}"'.encode() for name in _NAMES)


class _Address(msgspec.Struct, rename={"bucket": "s3BucketName", "key": "s3Key"}):
    bucket: str
    key: str


class LargeBodies:
    """Fetches what pointers point at. `connect` gives a boto3 S3 client, made at the first pointer."""

    def __init__(self, connect: Callable[[], Any], *, size_bytes_max: int) -> None:
        self._connect = connect
        self._size_bytes_max = size_bytes_max
        self._lock = threading.Lock()
        self._client: Any = None

    def whole(self, body: bytes) -> bytes:
        """The body itself; of a pointer, the object's bytes. Raises TransientError.

        A pointer that leads nowhere, may not be read, or leads to more than `size_bytes_max`, stays as it
        is: as no contract's envelope it is quarantined, and can be requeued once its object can be read.
        """
        if not body.startswith(_MARKS):
            return body
        try:
            _name, address = msgspec.json.decode(body, type=tuple[str, _Address])
        except msgspec.DecodeError:
            return body
        fetched = self._fetched(address)
        return body if fetched is None else fetched

    def _fetched(self, address: _Address) -> bytes | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = self._s3().get_object(Bucket=address.bucket, Key=address.key)
            if found["ContentLength"] > self._size_bytes_max:
                found["Body"].close()
                return None
            body: bytes = found["Body"].read()
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if 400 <= status < 500 and status != 429:
                return None
            raise TransientError("a message body cannot be read from S3", status=status) from error
        except (BotoCoreError, OSError) as error:
            raise TransientError("a message body cannot be read from S3", cause=type(error).__name__) from error
        return body

    def _s3(self) -> Any:
        with self._lock:
            self._client = self._client or self._connect()
            return self._client
