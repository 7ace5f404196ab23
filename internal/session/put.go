package session

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxChunk is the largest chunk of an object, in bytes; the library's own, four
// times smaller ones cost more for each byte.
const maxChunk = 512 << 10

// objectSubject is where an object's description is.
func objectSubject(bucket, name string) string {
	return "$O." + bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

// chunkSubject is where its content is.
func chunkSubject(bucket, id string) string { return "$O." + bucket + ".C." + id }

// objectStream is the stream of a bucket of objects.
func objectStream(bucket string) string { return "OBJ_" + bucket }

// putObject stores an object of AGENT_BLOBS whose name and id nobody has used.
// It does what the library's Put does, which leaves a goroutine behind now and
// then (nats.go 1.55: a listener that begins after its channel is gone), and it
// lets the caller choose the id. The object is there when its description is,
// which comes last.
func (s *Store) putObject(ctx context.Context, name, id string, r io.Reader) (info jetstream.ObjectInfo, err error) {
	bucket := s.names.BlobBucket()
	defer func() {
		if err != nil {
			s.dropChunks(ctx, bucket, id)
		}
	}()
	info = jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(maxChunk, s.limit()))}},
		Bucket:     bucket, NUID: id,
	}
	sum, chunk := sha256.New(), make([]byte, info.Opts.ChunkSize)
	for {
		n, readErr := io.ReadFull(r, chunk)
		if n > 0 {
			sum.Write(chunk[:n])
			if _, err := s.publish(ctx, &nats.Msg{Subject: chunkSubject(bucket, id), Data: chunk[:n]}); err != nil {
				return info, err
			}
			info.Size += uint64(n)
			info.Chunks++
		}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return info, fmt.Errorf("reading what to store: %w", readErr)
		}
	}
	info.Digest = jetstream.GetObjectDigestValue(sum)
	meta := nats.NewMsg(objectSubject(bucket, name))
	meta.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	if meta.Data, err = json.Marshal(info); err != nil {
		return info, err
	}
	_, err = s.publish(ctx, meta)
	return info, err
}

// dropChunks takes back what a broken Put has stored, if it can.
func (s *Store) dropChunks(ctx context.Context, bucket, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, objectStream(bucket))
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(chunkSubject(bucket, id)))
	}
	if err != nil {
		s.log.Debug("taking back what was stored of a payload", "error", err)
	}
}
