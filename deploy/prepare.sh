#!/bin/sh
# Makes what docker-compose.yml needs, once: the secrets in deploy/secrets, a folder for the notes with the sample in it, and in .env
# whose the notes are. What is there stays as it is; to renew a secret, remove its file, run this again and start anew.
set -eu
cd "$(dirname "$0")/.."
secrets=deploy/secrets

# The directory is the owner's alone. The files in it can be read by all, since containers run as other users.
umask 022
mkdir -p "$secrets"
chmod 700 "$secrets"

random() { od -An -tx1 -N24 /dev/urandom | tr -d ' \n'; }
keep() { [ -s "$secrets/$1" ] || printf '%s\n' "$2" >"$secrets/$1"; }

services="gateway agent retrieval notes contexts"
for name in admin_password grafana_password qdrant_api_key postgres_password; do keep "$name" "$(random)"; done
for service in $services; do keep "postgres_${service}_password" "$(random)"; done
for user in $services index; do keep "nats_${user}_password" "$(random)"; done
# The bundled models need no key.
keep provider_api_key none
keep embedding_api_key none

# What the servers read, made anew from the above.
for user in $services index; do
    printf 'nats_%s_password: "%s"\n' "$user" "$(cat "$secrets/nats_${user}_password")"
done >"$secrets/nats_passwords"
printf 'service:\n  api_key: "%s"\n' "$(cat "$secrets/qdrant_api_key")" >"$secrets/qdrant_config"

owner=$(id -u):$(id -g)
[ "$owner" != 0:0 ] || owner=1000:1000
if [ ! -d vaults ]; then
    mkdir vaults
    cp -R local/sample_vault vaults/Sample
    [ "$(id -u)" != 0 ] || chown -R "$owner" vaults
fi
grep -qs '^MARGINALIA_USER=' .env || echo "MARGINALIA_USER=$owner" >>.env

echo "Ready. Start it with: docker compose up -d"
echo "Then log in at http://127.0.0.1:8080 as admin; the password is in $secrets/admin_password."
