package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// blobRef stands in for a payload that is over the limit. Blob is the first
// member, so that a reader need not parse every line to see what it is.
type blobRef struct {
	Blob   string `json:"blob"` // object in AGENT_BLOBS
	Size   uint64 `json:"size"` // bytes of the payload
	Digest string `json:"digest"`
	// Type is the event's, for readers that don't follow references; "" in
	// inputs.
	Type string `json:"type,omitempty"`
}

// errBlobSize says that a blob is not as long as its reference says.
var errBlobSize = errors.New("session: bytes of blob and reference differ")

var blobStart = []byte(`{"blob":`)

// parseBlob says whether a payload or line is a reference.
func parseBlob(data []byte) (blobRef, bool) {
	if !bytes.HasPrefix(data, blobStart) {
		return blobRef{}, false
	}
	var ref blobRef
	if err := json.Unmarshal(data, &ref); err != nil || ref.Blob == "" || ref.Digest == "" {
		return blobRef{}, false
	}
	return ref, true
}

// putBlob stores a payload of the session and gives the reference to publish.
// mark begins the name's part behind the session.
func (s *Store) putBlob(ctx context.Context, session, mark, eventType string, data []byte) ([]byte, blobRef, error) {
	name := session + "/" + mark + nuid.Next()
	info, err := s.putObject(ctx, name, nuid.Next(), bytes.NewReader(data))
	if errors.Is(err, nats.ErrNoResponders) {
		err = jetstream.ErrBucketNotFound
	}
	if err != nil {
		return nil, blobRef{}, err
	}
	ref := blobRef{Blob: name, Size: info.Size, Digest: info.Digest, Type: eventType}
	line, err := json.Marshal(ref)
	return line, ref, err
}

// getBlob resolves a reference, and outlives a lost connection or leader.
func (s *Store) getBlob(ctx context.Context, ref blobRef) (data []byte, err error) {
	err = persistFor(ctx, blobTimeout, readPatience, func(ctx context.Context) (err error) {
		data, err = s.getBlobOnce(ctx, ref)
		return err
	})
	return data, err
}

// getBlobOnce reads a blob; the object store checks its digest.
func (s *Store) getBlobOnce(ctx context.Context, ref blobRef) ([]byte, error) {
	store, err := s.js.ObjectStore(ctx, s.names.BlobBucket())
	if err != nil {
		return nil, explain("opening "+s.names.BlobBucket(), err)
	}
	obj, err := store.Get(ctx, ref.Blob)
	if err != nil {
		return nil, explain("reading blob "+ref.Blob, err)
	}
	defer obj.Close()
	info, err := obj.Info()
	if err != nil {
		return nil, explain("reading blob "+ref.Blob, err)
	}
	if info.Size != ref.Size { // before it is read: a reference may lie
		return nil, fmt.Errorf("%w: %s has %d, its reference says %d", errBlobSize, ref.Blob, info.Size, ref.Size)
	}
	data := make([]byte, info.Size)
	if _, err := io.ReadFull(obj, data); err != nil {
		return nil, explain("reading blob "+ref.Blob, err)
	}
	// The digest is checked at the end of the stream.
	if _, err := obj.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("session: reading blob %s: %w", ref.Blob, cmp.Or(err, errBlobSize))
	}
	return data, nil
}

// deleteBlob forgets a payload; one that is gone is no error.
func (s *Store) deleteBlob(ctx context.Context, name string) error {
	store, err := s.js.ObjectStore(ctx, s.names.BlobBucket())
	if err != nil {
		return err
	}
	if err := store.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	return nil
}
