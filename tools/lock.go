package tools

import "sync"

// fileKey names a file for locking: its identity, or its path while it does
// not exist.
type fileKey struct {
	dev, ino uint64
	path     string
}

// fileLock makes calls that change one file run one after the other.
type fileLock struct {
	sync.Mutex
	users int // guarded by Workspace.mu
}
