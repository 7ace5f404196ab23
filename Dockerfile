# One static binary on nothing: no shell, no libc, not root. Where no registry
# can be reached, `make image` builds the same image from Dockerfile.scratch.
ARG GO_VERSION=1.26

FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /rootfs/ ./cmd/pi-worker ./cmd/pi-cli \
 && mkdir -p /rootfs/etc/ssl/certs /rootfs/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/ \
 && chmod 1777 /rootfs/tmp

FROM scratch
COPY --from=build /rootfs/ /
# The workspaces of sessions (worker.workspace.mode: temp) are below /tmp.
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/pi-worker"]
CMD ["run"]
