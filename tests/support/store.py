"""An S3 server on this machine (moto), which can be told to answer that it is too busy."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Store", "served"]


class Store:
    """A served store.

    Attributes
    ----------
    busy
        Number of requests that are still to be answered with 503.
    answered
        Number of requests that were.
    """

    def __init__(self) -> None:
        self.busy = self.answered = 0

    def wrap(self, application):
        def answer(environment, start):
            if self.busy and environment["REQUEST_METHOD"] in ("GET", "PUT", "POST"):
                self.busy -= 1
                self.answered += 1
                start("503 Slow Down", [("Content-Type", "application/xml")])
                return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
            return application(environment, start)

        return answer


@contextmanager
def served(buckets: tuple[str, ...] = ("runs",)) -> Iterator[Store]:
    """Serve buckets; what is in the environment afterwards leads there."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = Store()
    server._server.app = store.wrap(server._server.app)
    given = {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    try:
        for bucket in buckets:
            boto3.client("s3").create_bucket(Bucket=bucket)
        yield store
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
