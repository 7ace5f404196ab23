package tools

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// limited is argv, its file first, under the limits. They are not the keeper's
// own, which must always be able to do its work, so that they are set by a
// process between the two.
func (k keeping) limited(argv []string) []string {
	if k.Limits == (CommandLimits{}) {
		return argv
	}
	return append([]string{"/proc/self/exe", limiterName, string(mustJSON(keeping{Limits: k.Limits}))}, argv...)
}

// runLimited becomes argv, its file first. It returns if that fails.
func runLimited(l CommandLimits, argv []string) {
	// The keeper's pipes are closed here already: errors are output.
	fail := func(err error) {
		_, _ = os.Stderr.WriteString("command could not be limited: " + err.Error() + "\n")
		syscall.Exit(126)
	}
	for _, pair := range []struct {
		resource int
		limit    int64
	}{
		{unix.RLIMIT_FSIZE, l.FileBytes}, {unix.RLIMIT_NPROC, l.Processes},
		{unix.RLIMIT_AS, l.MemoryBytes}, // last: this process needs memory too
	} {
		resource, limit := pair.resource, pair.limit
		var have unix.Rlimit
		if limit <= 0 || unix.Getrlimit(resource, &have) == nil && have.Max <= uint64(limit) {
			continue // the worker's own limit is as strict
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)}); err != nil {
			fail(err)
		}
	}
	fail(syscall.Exec(argv[0], argv[1:], os.Environ()))
}

// loopbackUp starts the loopback interface of a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
