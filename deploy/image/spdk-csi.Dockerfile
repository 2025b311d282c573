# The CSI driver: controller and node service. Run in the root of the repository:
#   docker build -f deploy/image/spdk-csi.Dockerfile --build-arg VERSION=v0.1.0 -t REGISTRY/spdk-csi:v0.1.0 .
ARG GO_IMAGE=docker.io/library/golang:1.26
# Debian 12, not the latest: file systems created by Debian 13's newer mkfs use features that
# kernels before 5.15 (ext4: orphan_file) and 5.19 (XFS: nrext64) refuse to mount.
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim

FROM --platform=${BUILDPLATFORM} ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/spdk-csi ./cmd/spdk-csi

FROM ${BASE_IMAGE}
# The node service's programs: btrfs-progs, e2fsprogs and xfsprogs create, check and expand file systems, mount and
# util-linux (blkid, nsenter) mount and identify them, kmod (modprobe) loads nvme-tcp, cryptsetup-bin
# encrypts volumes (libgcc-s1 is for its threads). nvme-cli is not needed, because the driver uses the
# kernel's interface. For open-iscsi, see iscsiadm.
RUN apt-get update \
 && apt-get install -y --no-install-recommends btrfs-progs ca-certificates cryptsetup-bin e2fsprogs kmod libgcc-s1 mount util-linux xfsprogs \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf /var/log/apt /var/log/dpkg.log
COPY deploy/image/iscsiadm /usr/local/sbin/iscsiadm
COPY --from=build /out/spdk-csi /usr/local/bin/spdk-csi
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="spdk-csi" \
      org.opencontainers.image.description="CSI driver for SPDK logical volumes over NVMe-oF and iSCSI" \
      org.opencontainers.image.source="https://github.com/spdkgate/spdkgate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The controller needs no privileges, and its pod runs as this user. The node service needs root on
# its node, and its pod sets that.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/spdk-csi"]
