#!/bin/sh
# Makes the image $1, a bare Debian with Python, in place of the public images of Python, where no registry can be reached. Needs root,
# debootstrap and Debian's archive.
set -eu
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
# busybox has the wget that the image of NATS has.
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,busybox trixie "$tree" >&2
ln -s busybox "$tree/usr/bin/wget"
# Whatever this machine trusts: its way to the packages may be its own.
cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"
rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
tar -C "$tree" -c . | docker import --change 'ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt' - "$1"
