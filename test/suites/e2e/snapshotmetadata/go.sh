#!/bin/sh
# Stands in for the go command in the image golang. Kubernetes' test of SnapshotMetadata installs snapshot-metadata-verifier
# with it; the program is in the image instead.
case $1 in
  install) ;;
  env) echo /go ;;
  *) exit 2 ;;
esac
