#!/bin/sh
# manifest.sh VERSION DIR prints the manifest for krew: the template in this directory, with the version and the checksums
# of the archives kubectl-spdkgate-OS-ARCH.tar.gz in DIR. It fails if an archive named in the template is missing.
set -eu
template=$(dirname "$0")/spdkgate.yaml
manifest=$(sed "/^#/d; s|@VERSION@|$1|g" "$template")
for platform in $(sed -n 's/.*@SHA256-\(.*\)@.*/\1/p' "$template"); do
	sum=$(sha256sum "$2/kubectl-spdkgate-$platform.tar.gz")
	manifest=$(printf '%s\n' "$manifest" | sed "s|@SHA256-$platform@|${sum%% *}|")
done
printf '%s\n' "$manifest"
