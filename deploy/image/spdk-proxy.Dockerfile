# The proxy, for storage servers that run everything in containers. On other servers, use the package with systemd.
# Run in the root of the repository:
#   docker build -f deploy/image/spdk-proxy.Dockerfile --build-arg VERSION=v0.1.0 -t REGISTRY/spdk-proxy:v0.1.0 .
ARG GO_IMAGE=docker.io/library/golang:1.26
# Contains CA certificates, /etc/passwd and time zones, but no shell and no libc.
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=${BUILDPLATFORM} ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/spdk-proxy ./cmd/spdk-proxy

FROM ${BASE_IMAGE}
COPY --from=build /out/spdk-proxy /usr/local/bin/spdk-proxy
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="spdk-proxy" \
      org.opencontainers.image.description="Authenticated HTTPS in front of SPDK's JSON-RPC socket" \
      org.opencontainers.image.source="https://github.com/spdkgate/spdkgate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Only root may open spdk_tgt's socket. Either run spdk_tgt so that this user can open the socket, in a directory
# owned by this user, or run with --user 0 --cap-drop ALL. Mount the directory, never the socket, because SPDK
# creates a new one at each start.
USER 65532:65532
EXPOSE 9009
ENTRYPOINT ["/usr/local/bin/spdk-proxy"]
# Its configuration is /etc/spdk-proxy/spdk-proxy.yaml.
CMD ["serve"]
