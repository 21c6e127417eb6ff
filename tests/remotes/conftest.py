"""Servers on loopback that keep what DVC pushes: one that speaks S3, and OpenSSH."""

import getpass
import logging
import os
import shutil
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BUCKET = "shared"
SSHD = shutil.which(
    "sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
)


@dataclass
class Remote(ABC):
    """A DVC remote and its content without DVC; names are those of objects below `url`."""

    name: str
    url: str
    settings: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    def names(self) -> list[str]: ...

    @abstractmethod
    def read(self, name: str) -> bytes: ...

    @abstractmethod
    def write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def delete(self, name: str) -> None: ...


@dataclass
class Bucket(Remote):
    client: Any = None

    def names(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=BUCKET, Prefix=f"{self._prefix}/"
        )
        return [
            line["Key"].removeprefix(f"{self._prefix}/")
            for page in pages
            for line in page.get("Contents", ())
        ]

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}")["Body"].read()

    def write(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}", Body=content)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=f"{self._prefix}/{name}")

    @property
    def _prefix(self) -> str:
        return self.url.removeprefix(f"s3://{BUCKET}/")


@dataclass
class Folder(Remote):
    folder: Path = Path()

    def names(self) -> list[str]:
        return [
            str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file()
        ]

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).unlink()
        (self.folder / name).write_bytes(content)

    def delete(self, name: str) -> None:
        (self.folder / name).unlink()


class S3Server:
    """An S3 server in this process; what it keeps is in memory."""

    def __init__(self, address: str, client: Any) -> None:
        self.address = address
        self.client = client

    def remote(self, name: str) -> Remote:
        """A place of its own on the server, empty."""
        settings = {"endpointurl": self.address, "region": "us-east-1", "verify": "true"}
        secrets = {"access_key_id": "someone", "secret_access_key": "something"}
        return Bucket(name, f"s3://{BUCKET}/{name}", settings, secrets, client=self.client)


class SSHServer:
    """OpenSSH's server, which lets this user in with a key made for it."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder

    def remote(self, name: str) -> Remote:
        """A folder of its own on the server, empty."""
        folder = self.folder / name
        url = f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{folder}"
        return Folder(
            name, url, {"verify": "true"}, {"keyfile": str(self.folder / "key")}, folder=folder
        )


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Serves S3 as long as the context lasts."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line a request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    who = {
        "aws_access_key_id": "someone",
        "aws_secret_access_key": "something",
        "region_name": "us-east-1",
    }
    client = boto3.client("s3", endpoint_url=address, **who)
    client.create_bucket(Bucket=BUCKET)
    try:
        yield S3Server(address, client)
    finally:
        server.stop()


@contextmanager
def ssh_server(folder: Path) -> Iterator[SSHServer]:
    """Serves SSH inside the context; keys, settings and pushed files are stored in `folder`."""
    assert SSHD is not None
    if (
        os.getuid() == 0
    ):  # where root's sshd locks itself in; Debian makes it when the service starts
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    port = free_port()
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": folder / "key.pub",
        "AuthenticationMethods": "publickey",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "Subsystem": "sftp internal-sftp",
    }
    file = folder / "sshd_config"
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    server = subprocess.Popen(
        [SSHD, "-D", "-e", "-f", str(file)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        assert "Server listening" in said, said
        yield SSHServer(port, folder)
    finally:
        server.terminate()
        server.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session", params=["s3", "ssh"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server | SSHServer]:
    """Each of the servers, running."""
    if request.param == "s3":
        with s3_server() as server:
            yield server
    elif SSHD is None:
        pytest.skip("needs OpenSSH's server: apt-get install openssh-server")
    else:
        with ssh_server(tmp_path_factory.mktemp("ssh")) as server:
            yield server
