// Package tools holds the built-in tools of an agent: read, write, edit, bash,
// grep, find and ls.
//
//	ws, err := tools.Open("/srv/workspaces/s1", nil)
//	if err != nil {
//		return err
//	}
//	defer ws.Close()
//	list, err := ws.Tools("read", "grep", "find", "ls")
//
// A [Workspace] is one session's folder. The six tools that touch files reach
// it only through an [os.Root]: absolute paths, dot-dot and links lead nowhere
// else, and only regular files and directories are opened, so that no pipe or
// device blocks a worker. Links stay usable as long as they point inside.
//
// bash, which needs Linux, is not confined by this package: a command can read what the worker's
// user can read. What this package does promise is that nothing a command
// started outlives its call, that it gets no environment but the listed
// variables, no standard input and no inherited descriptors, and that its
// output is bounded. For confinement give [Options.Wrapper], for example
// bubblewrap with only the workspace mounted.
//
// On Linux [Options.Private] does as much by namespaces alone. With bubblewrap
// it would be, for a workspace in dir:
//
//	Wrapper: []string{"bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
//		"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
//		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", dir, dir, "--chdir", dir,
//		"--unshare-all", "--die-with-parent", "--new-session", "--"}
//
// The tools keep their own files (whole outputs of long commands, a temporary
// folder) in .pi-worker of the workspace, which git and searches leave out.
//
// Paths in results and errors are those the model gave, or relative to the
// workspace; the folder's place on the host is never shown.
//
// [Func] makes a tool of a typed Go function.
package tools
