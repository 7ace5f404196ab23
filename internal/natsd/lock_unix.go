//go:build unix

package natsd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock takes the folder for this process: two servers on one store would ruin
// it. The lock ends with the file, and with the process.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrFolderInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking: %w", err), f.Close())
	}
	return f, nil
}
