#!/bin/sh
# Runs go build with its arguments, and prints a line for each module that it downloads and for every 50 packages that it compiles.
# The first build takes minutes, in which go build itself prints nothing.
set -eu
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
echo "compiling: the first time, this downloads modules and takes minutes"
compiled=0
{ "${GO:-go}" build -v "$@" 2>&1 || echo failed >"$failed"; } | while IFS= read -r line; do
	case $line in
	*[!A-Za-z0-9./_~-]*) echo "$line" ;; # a download or an error, not a package
	*)
		compiled=$((compiled + 1))
		[ $((compiled % 50)) != 0 ] || echo "$compiled packages compiled"
		;;
	esac
done
[ ! -s "$failed" ]
