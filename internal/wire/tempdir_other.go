//go:build !unix

package wire

import (
	"errors"
	"os"
)

// lockFile is of no use where the system has no flock: nothing is swept there.
func lockFile(path string, flags int) (*os.File, error) {
	if flags == 0 {
		return nil, errors.ErrUnsupported
	}
	return os.OpenFile(path, os.O_RDWR|flags, 0o600)
}

func isOwn(string, os.FileMode) bool { return false }
