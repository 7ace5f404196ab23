package tools

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// keptCapabilities are root's powers that a private command keeps: those over
// files and processes that it can see anyway. The others go, above all those to
// mount, to make devices and to open files by handle.
var keptCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_NET_BIND_SERVICE,
}

// plainDevices are those that a private command sees.
var plainDevices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// hideHost leaves of the file system only what a command needs: the workspace
// as it is, the rest read-only and without what belongs to others. It runs in
// the keeper, in a mount namespace with a /proc of its own.
func hideHost(k keeping) error {
	workspace := k.Workspace
	keep, err := unix.Open(workspace, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the workspace: %w", err)
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(-1, "/", unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("making the file system read-only: %w", err)
	}
	for _, dir := range hiddenDirs(append([]string{"/tmp", "/var/tmp", "/run", k.Home, filepath.Dir(workspace)}, k.Hidden...)) {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			continue // it was inside one that is hidden now
		case info.IsDir():
			err = cover(dir, "1777")
		default:
			err = coverFile(dir)
		}
		if err != nil {
			return err
		}
	}
	if err := plainDev(); err != nil {
		return err
	}
	if err := os.MkdirAll(workspace, 0o755); err != nil {
		return fmt.Errorf("making the workspace's place: %w", err)
	}
	if err := bind(keep, workspace); err != nil {
		return err
	}
	writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(-1, workspace, 0, writable); err != nil {
		return fmt.Errorf("making the workspace writable: %w", err)
	}
	if err := unix.Chdir(workspace); err != nil {
		return fmt.Errorf("entering the workspace: %w", err)
	}
	return dropPowers()
}

// hiddenDirs are the folders and files that hold what belongs to others, outer
// ones first, links resolved.
func hiddenDirs(dirs []string) []string {
	for i, dir := range dirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dirs[i] = real
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool {
		return !filepath.IsAbs(dir) || dir == "/"
	})
}

// cover puts an empty folder over dir.
func cover(dir, mode string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=256m,mode="+mode); err != nil {
		return fmt.Errorf("hiding %s: %w", dir, err)
	}
	return nil
}

// coverFile puts the null device over a file.
func coverFile(name string) error {
	if err := unix.Mount("/dev/null", name, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("hiding %s: %w", name, err)
	}
	return nil
}

func bind(fd int, target string) error {
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("keeping %s: %w", target, err)
	}
	return nil
}

// plainDev leaves only harmless devices.
func plainDev() error {
	fds := map[string]int{}
	for _, name := range plainDevices {
		if fd, err := unix.Open("/dev/"+name, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			fds[name] = fd
		}
	}
	// Not sticky: there, nobody but its owner may open a device with O_CREAT,
	// as a shell does.
	if err := cover("/dev", "0755"); err != nil {
		return err
	}
	for name, fd := range fds {
		if err := os.WriteFile("/dev/"+name, nil, 0o666); err != nil {
			return err
		}
		if err := bind(fd, "/dev/"+name); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	return os.Mkdir("/dev/shm", 0o1777)
}

// dropPowers is for this thread, which starts the shell.
func dropPowers() error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(keptCapabilities, c) {
			continue
		}
		// A capability that the kernel does not know cannot be had either.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
