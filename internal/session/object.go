package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pi-worker/pi-worker/subjects"
)

// objectTime is how long the storing of an object is tried again.
const objectTime = 30 * time.Second

// HeadingOutput is the heading of whole outputs of commands. Each is stored
// right before the record of its call, and goes with it.
const HeadingOutput = "output"

// Objects are a session's objects under one heading, in AGENT_BLOBS: their names
// there are "<session>/<heading>/<name>", so that Remove finds them.
type Objects struct {
	store  *Store
	prefix string
}

// Objects gives the session's objects under the heading.
func (s *Store) Objects(session, heading string) (*Objects, error) {
	if _, err := subjects.ParseSession(session); err != nil {
		return nil, err
	}
	return &Objects{s, session + "/" + heading + "/"}, nil
}

// Put stores an object. The name must be new. It outlives a lost connection or
// leader of up to 30 s, and reads r again from its beginning for that.
func (o *Objects) Put(ctx context.Context, name string, r io.ReadSeeker) error {
	pause := 50 * time.Millisecond
	for attempt, end := 1, time.Now().Add(objectTime); ; attempt++ {
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		err := o.put(ctx, name, attempt, r)
		if err == nil || !isTransient(err) || ctx.Err() != nil || time.Now().After(end) {
			return explain("storing "+o.prefix+name, err)
		}
		if !pauseFor(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxPause)
	}
}

func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *Objects) put(ctx context.Context, name string, attempt int, r io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, blobTimeout)
	defer cancel()
	// What comes late of another attempt must not get into this one.
	_, err := o.store.putObject(ctx, o.prefix+name, o.id(name)+"."+strconv.Itoa(attempt), r)
	return err
}

// id is the beginning of the object store's ids for an object: always the same
// one, so that Delete finds the content of an object that was never finished.
func (o *Objects) id(name string) string {
	sum := sha256.Sum256([]byte(o.prefix + name))
	return hex.EncodeToString(sum[:16])
}

// Get opens an object, to be read within ctx. The error of the last Read tells
// of bytes that are not those of Put.
func (o *Objects) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	store, err := o.store.js.ObjectStore(ctx, o.store.names.BlobBucket())
	if err != nil {
		return nil, explain("opening "+o.store.names.BlobBucket(), err)
	}
	obj, err := store.Get(ctx, o.prefix+name)
	if err != nil {
		return nil, explain("reading "+o.prefix+name, err)
	}
	return obj, nil
}

// Delete forgets an object without a trace, where the object store's own Delete
// leaves a marker for ever; also one whose Put was never finished. found is
// false if there was no finished one.
func (o *Objects) Delete(ctx context.Context, name string) (found bool, err error) {
	bucket := o.store.names.BlobBucket()
	stream, err := o.store.js.Stream(ctx, objectStream(bucket))
	if err != nil {
		return false, explain("opening "+bucket, err)
	}
	_, err = stream.GetLastMsgForSubject(ctx, objectSubject(bucket, o.prefix+name))
	if found = err == nil; err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, explain("looking for "+o.prefix+name, err)
	}
	// What leads to the content goes last.
	for _, subject := range []string{chunkSubject(bucket, o.id(name)) + ".*", objectSubject(bucket, o.prefix+name)} {
		if err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return found, explain("deleting "+o.prefix+name, err)
		}
	}
	return found, nil
}

// Object is one of a session's objects.
type Object struct {
	Name   string // without what all of its heading have in common
	Size   int64  // bytes
	Stored time.Time
}

// List gives the objects of this heading, the oldest first. It reads the names of
// all sessions' objects, for the object store has no other way.
func (o *Objects) List(ctx context.Context) ([]Object, error) {
	store, err := o.store.js.ObjectStore(ctx, o.store.names.BlobBucket())
	if err != nil {
		return nil, explain("opening "+o.store.names.BlobBucket(), err)
	}
	infos, err := store.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, explain("listing "+o.store.names.BlobBucket(), err)
	}
	var list []Object
	for _, info := range infos {
		if name := o.ShortName(info.Name); name != "" {
			list = append(list, Object{name, int64(info.Size), info.ModTime})
		}
	}
	slices.SortStableFunc(list, func(a, b Object) int { return a.Stored.Compare(b.Stored) })
	return list, nil
}

// ShortName is the name of an object of this heading without what it has in
// common with all, "" if it is none of them.
func (o *Objects) ShortName(object string) string {
	name, ok := strings.CutPrefix(object, o.prefix)
	if !ok {
		return ""
	}
	return name
}

// FullName is the name of an object in AGENT_BLOBS.
func (o *Objects) FullName(name string) string { return o.prefix + name }
