//go:build !unix

package natsd

import "os"

// lock is of no use where the system has no flock: nothing keeps a second
// server from the folder there.
func lock(dir string) (*os.File, error) { return nil, os.MkdirAll(dir, 0o755) }
