#!/bin/sh
# What docker-compose.yml uses of the official image's entrypoint.
set -eu
data=/var/lib/postgresql/18/docker
if [ ! -s "$data/PG_VERSION" ]; then
    mkdir -p "$data"
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-host=scram-sha-256 --auth-local=trust >/dev/null
    echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -D "$data" postgres >/dev/null
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
fi
exec postgres -D "$data" -c listen_addresses='*'
