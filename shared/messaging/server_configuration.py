"""The configuration of the NATS server: its limits, its disk, a user for each service with the permissions that the contracts give it.

    python -m shared.messaging.server_configuration DIRECTORY

writes `DIRECTORY/nats-server.conf` with the passwords in `DIRECTORY/nats_<user>_password`, and makes those that are missing. Run it anew
for a new version: what a service may do changes with the contracts. The server takes it in at a reload (SIGHUP).
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared import credentials
from shared.messaging import permissions

FILE = "nats-server.conf"
STORE = "/data/jetstream"
# A note may have 8 MB, and JSON may double it.
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024


def configuration(passwords: Mapping[str, str], store: str, *, administrator: str | None = None, **settings: Any) -> str:
    """The text of the file; the server's format is a superset of JSON.

    Args:
        passwords: of each of `permissions.USERS`.
        store: where streams lie, as the server sees it.
        administrator: the password of a user `marginalia` that may do everything; without one there is none.
        settings: further ones, by the server's names.
    """
    users = [{"user": user, "password": passwords[user], "permissions": _permissions(user)} for user in permissions.USERS]
    if administrator is not None:
        users.append({"user": permissions.ADMINISTRATOR, "password": administrator})
    fixed = {
        "server_name": "marginalia",
        "max_payload": MAX_PAYLOAD_BYTES,
        # An acknowledged fact survives a power cut; the default is two minutes late.
        "jetstream": {"store_dir": store, "sync_interval": "always"},
        "authorization": {"users": users},
    }
    return json.dumps(fixed | settings, indent=1) + "\n"


def tls(certificate: str, key: str) -> dict[str, Any]:
    """The server's setting `tls`: nothing is said in the clear, the server's greeting included."""
    return {"cert_file": certificate, "key_file": key, "handshake_first": True}


def passwords_in(directory: Path) -> dict[str, str]:
    """The password of each user; those that are missing are made. Raises OSError."""
    return {user: credentials.password(password_file(directory, user))[0] for user in permissions.USERS}


def password_file(directory: Path, user: str) -> Path:
    """Where the password of a user lies."""
    return directory / f"nats_{user}_password"


def _permissions(user: str) -> dict[str, Any]:
    its = permissions.of(user)
    return {
        "publish": {"allow": list(its.publish)},
        "subscribe": {"allow": list(its.subscribe)},
        "allow_responses": {"max": 1, "expires": f"{its.reply_seconds}s"},
    }


def main() -> int:
    """The exit status: 0, or 1 (and one line) where the directory cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m shared.messaging.server_configuration", description=f"Writes {FILE}.")
    parser.add_argument("directory", type=Path, help="where the passwords are, or are to be made")
    parser.add_argument("--certificate", help="of the server, as it sees the file; with --key, and TLS is asked of every client")
    parser.add_argument("--key", help="of the certificate")
    parser.add_argument("--store", default=STORE, help="where the server keeps its streams (%(default)s)")
    arguments = parser.parse_args()
    if (arguments.certificate is None) != (arguments.key is None):
        parser.error("--certificate and --key go together")
    directory: Path = arguments.directory
    encrypted: dict[str, Any] = {"tls": tls(arguments.certificate, arguments.key)} if arguments.certificate else {}
    try:
        credentials.write_private(directory / FILE, configuration(passwords_in(directory), arguments.store, **encrypted))
    except OSError as error:
        sys.stderr.write(f"{error.filename or directory}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
