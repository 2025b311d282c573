#!/bin/sh
# Makes sure that the programs which the tests and the demo call are there:
# installs Debian's packages when root, and otherwise names them. Arguments are further programs, each as PROGRAM or PROGRAM:PACKAGE.
set -eu

missing=
need() { # need PROGRAM PACKAGE
	PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need go golang
need gcc gcc
need mkfs.ext4 e2fsprogs
need mkfs.xfs xfsprogs
need cryptsetup cryptsetup-bin
need mkfs.btrfs btrfs-progs
need blkid util-linux
need mount mount
need git git
need curl curl
need jq jq
need rpm rpm
for program; do need "${program%%:*}" "${program##*:}"; done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing what is missing:$missing"
	apt-get update -q
	# shellcheck disable=SC2086 # a list of packages
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing libc6-dev
else
	echo "missing:$missing. Get it with: sudo apt-get install$missing" >&2
	exit 1
fi
