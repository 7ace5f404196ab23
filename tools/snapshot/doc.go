// Package snapshot keeps a folder in a store of objects, so that another
// machine can go on with the same files:
//
//	tree, err := snapshot.New(dir, store, snapshot.Options{})
//	tree.Begin(epoch)                 // names of new objects begin with it
//	err = tree.Restore(ctx, manifest) // into an empty folder
//	…
//	saved, err := tree.Save(ctx)      // nil: nothing has changed
//
// # What is stored
//
// A save stores the contents that the store does not have yet, packed together,
// and then a manifest, which lists all files:
//
//	<epoch>.1   4 MiB of contents, one behind the other
//	<epoch>.2   the next ones; a file over 4 MiB is an object of its own
//	<epoch>.3   the manifest: gzip of JSON
//
// Contents are known by their SHA-256: what is there already, under whatever
// path, is not stored again. The files of one folder are packed because an
// object costs the broker a dozen messages, however small it is; see
// docs/performance-tools.md for the difference.
//
// # What is kept of a file
//
// Path, permission bits, time of change, content; of a link its target, which is
// never followed; of a folder its permission bits, empty folders included. Not
// kept are owners, extended attributes, setuid bits, devices, pipes and sockets;
// hard links become files of their own.
//
// # Which snapshot counts
//
// Save returns after the manifest is stored. Only then somebody writes its name
// down, and only what is written down is ever restored: a save that broke off
// half-way is nothing but objects that no manifest names. Those, and the ones
// that a later save made superfluous, are deleted by Sweep, which is to be
// called when the name of the last save is safe.
package snapshot
