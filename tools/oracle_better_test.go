package tools

import (
	"fmt"
	"strings"
	"time"
)

// better is what a case must do where pi's behaviour is a fault.
type better struct {
	options func(*Options) // for the call; nil: none
	check   func(c *oracleCase, run *rawRun, got *oracleResult, before map[string]oracleEntry) []string
}

// genericBehaviour is what any case must hold to that asks for better
// behaviour and has no expectation of its own: it ends in time, and nothing
// outside the workspace is read or written. Commands are held to that where the
// note asks for confinement: they run privately then.
func genericBehaviour(c *oracleCase, run *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
	d := &comparer{c: c}
	if run != nil && c.Compare.MaxMs > 0 && run.Took > time.Duration(c.Compare.MaxMs)*time.Millisecond {
		d.differ("took %v, want at most %d ms", run.Took, c.Compare.MaxMs)
	}
	if c.Tool == "bash" && (c.Advice != "confine" || bestIsolation() == isolateReaper) {
		return d.diffs
	}
	d.diffs = append(d.diffs, outsideUntouched(got, before)...)
	for _, f := range c.Files {
		if f.Root == "" || f.Root == "workspace" || f.Text == nil || len(strings.TrimSpace(*f.Text)) < 4 {
			continue
		}
		if !got.IsError && strings.Contains(got.text(), strings.TrimSpace(*f.Text)) {
			d.differ("the result holds text from outside the workspace")
		}
	}
	return d.diffs
}

// outsideUntouched says what changed beside the workspace.
func outsideUntouched(got *oracleResult, before map[string]oracleEntry) []string {
	d := &comparer{}
	outside := func(m map[string]oracleEntry) map[string]oracleEntry {
		out := map[string]oracleEntry{}
		for name, e := range m {
			if strings.HasPrefix(name, "$") {
				out[name] = e
			}
		}
		return out
	}
	d.files(outside(got.FilesAfter), outside(before))
	return d.diffs
}

// says is a check for one exact result.
func says(isError bool, text string) better {
	return better{check: func(c *oracleCase, _ *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
		d := &comparer{c: c}
		equal(d, "isError", got.IsError, isError)
		g := got.text()
		if isError {
			g = strings.NewReplacer("$WORKSPACE/", "", "$WORKSPACE", ".").Replace(g)
		}
		equal(d, "text", g, text)
		return append(d.diffs, genericBehaviour(c, nil, got, before)...)
	}}
}

// refuses is an error that begins with text; no file changed.
func refuses(text string) better {
	return better{check: func(c *oracleCase, _ *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
		d := &comparer{c: c}
		equal(d, "isError", got.IsError, true)
		if !strings.HasPrefix(got.text(), text) {
			d.differ("text %q does not begin with %q", got.text(), text)
		}
		d.files(got.FilesAfter, before)
		return d.diffs
	}}
}

const outsideText = "EACCES: path is outside the workspace"

// outsideError is what every path out of the workspace gets, with nothing
// changed anywhere.
var outsideError = better{check: func(c *oracleCase, run *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
	d := &comparer{c: c}
	equal(d, "text", got.text(), outsideText)
	return append(d.diffs, refuses(outsideText).check(c, run, got, before)...)
}}

// leaves is a success after which a file holds this and, for edit, the diff is
// that.
func leaves(file, content, diff string) better {
	return better{check: func(c *oracleCase, _ *rawRun, got *oracleResult, before map[string]oracleEntry) []string {
		d := &comparer{c: c}
		equal(d, "isError", got.IsError, false)
		want := oracleEntry{Type: "file", Mode: "0644"}
		want.describe([]byte(content))
		equal(d, "file", got.FilesAfter[file], want)
		if m, ok := canonical(got.Details).(map[string]any); ok || diff != "" {
			equal(d, "diff", m["diff"], any(diff))
		}
		equal(d, "number of files", len(got.FilesAfter), len(before))
		return d.diffs
	}}
}

// all holds a case to several expectations.
func all(list ...better) better {
	return better{check: func(c *oracleCase, run *rawRun, got *oracleResult, before map[string]oracleEntry) (diffs []string) {
		for _, b := range list {
			diffs = append(diffs, b.check(c, run, got, before)...)
		}
		return diffs
	}}
}

// within is a time limit.
func within(limit time.Duration) better {
	return better{check: func(_ *oracleCase, run *rawRun, _ *oracleResult, _ map[string]oracleEntry) []string {
		if run.Took > limit {
			return []string{fmt.Sprintf("took %v, want at most %v", run.Took, limit)}
		}
		return nil
	}}
}

// nothingSurvives holds the list of survivors to be empty.
var nothingSurvives = better{check: func(_ *oracleCase, _ *rawRun, got *oracleResult, _ map[string]oracleEntry) []string {
	d := &comparer{}
	if got.Survivors == nil {
		d.differ("survivors were not recorded")
	} else {
		equal(d, "survivors", *got.Survivors, []string{})
	}
	return d.diffs
}}

// truncated is a result that begins and ends like this and says that lines
// were left out.
func truncated(begin, end string) better {
	return better{check: func(_ *oracleCase, _ *rawRun, got *oracleResult, _ map[string]oracleEntry) []string {
		d := &comparer{}
		equal(d, "isError", got.IsError, false)
		if text := got.text(); !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) {
			d.differ("text %s does not begin with %q and end with %q", short(text), begin, end)
		}
		return d.diffs
	}}
}

// numbers are the lines from first to last, each with its newline.
func numbers(first, last int) string {
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// private runs a case's command where only the workspace is to be seen.
func private(b better) better {
	b.options = func(o *Options) { o.Private = true }
	return b
}

// betterBehaviour is our own expectation for every case whose advice is fix or
// confine.
var betterBehaviour = map[string]better{
	"bash/abort-before-start":              all(says(true, "Command aborted"), nothingSurvives, within(time.Second)),
	"bash/abort-misses-new-session":        all(says(true, "Command aborted"), nothingSurvives),
	"bash/background-child-survives":       all(says(false, "started\n"), nothingSurvives, within(2*time.Second)),
	"bash/environment-bash-env":            says(false, "command\n"),
	"bash/environment":                     says(false, "HOME=$HOMEDIR\nLANG=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nPWD=$WORKSPACE\nSHLVL=1\nTMPDIR=$TMPDIR\n_=/usr/bin/env\n"),
	"bash/exactly-2000-lines":              says(false, numbers(1, 2000)),
	"bash/kill-own-group":                  all(says(true, "before\n\n\nCommand was killed by SIGKILL"), nothingSurvives),
	"bash/shell-killed-by-signal":          says(true, "before\n\n\nCommand was killed by SIGKILL"),
	"bash/shell-terminated-by-signal":      says(true, "Command was killed by SIGTERM"),
	"bash/single-command-killed-by-signal": says(true, "Command was killed by SIGKILL"),
	// The whole output is kept in the workspace, not in TMPDIR.
	"bash/temp-directory-missing-crashes":  truncated("1003\n", "end\n\n\n[Showing lines 1003-3002 of 3002. Full output: $TMP]"),
	"bash/timeout-held-pipe":               all(says(true, "started\n\n\nCommand timed out after 1 seconds"), nothingSurvives, within(3*time.Second)),
	"bash/timeout-too-large-fires-at-once": says(false, "done\n"),
	"bash/umask-and-limits":                says(false, "0022\nunlimited\nunlimited\n"),
	"bash/utf8-streams-mixed":              says(false, "\uFFFDE\uFFFD\n"), // true order: the bytes were written in this order
	"bash/reads-outside-workspace":         private(says(true, "cat: ../outside/s.txt: No such file or directory\n\n\nCommand exited with code 1")),
	"bash/writes-outside-workspace":        private(refuses("/bin/bash: line 1: ../outside/a.txt: No such file or directory")),

	"edit/fuzzy-one-of-two":                    leaves("a.txt", "ONE\nTWO\nthree \u2014 \n", "-1 \u201cone\u201d\n-2 'two'\n+1 ONE\n+2 TWO\n 3 three \u2014 "),
	"edit/fuzzy-rewrites-whole-file":           leaves("a.txt", "keep \u201cthis\u201d \u2014 as is\n\ufb01ne \u00bd x\u00b2 \uff21\ntrailing   \nsay 'bye'\n", " 1 keep \u201cthis\u201d \u2014 as is\n 2 \ufb01ne \u00bd x\u00b2 \uff21\n 3 trailing   \n-4 say 'hi'\n+4 say 'bye'"),
	"edit/invalid-utf8-damaged":                leaves("a.txt", "alpha \xe9\xff\nBETA\n", " 1 alpha \uFFFD\uFFFD\n-2 beta\n+2 BETA"),
	"edit/mixed-line-ends-first-is-crlf":       leaves("a.txt", "alpha\r\nbeta\nGAMMA\n", " 1 alpha\n 2 beta\n-3 gamma\n+3 GAMMA"),
	"edit/mixed-line-ends-first-is-lf":         leaves("a.txt", "alpha\nbeta\r\nGAMMA\r\n", " 1 alpha\n 2 beta\n-3 gamma\n+3 GAMMA"),
	"edit/new-text-null":                       refuses("Validation failed"),
	"edit/newline-and-spaces-old-text":         leaves("a.txt", "a\nb\nc\n", "-1 a  \n+1 a\n 2 b\n 3 c"),
	"edit/tilde-path":                          outsideError,
	"edit/trailing-space-old-text-overcounted": leaves("a.txt", "x bar\nfoobaz\n", "-1 foo bar\n+1 x bar\n 2 foobaz"),
	"edit/unique-exact-but-fuzzy-twice":        leaves("a.txt", "x\nsay \u201chi\u201d\n", "-1 say \"hi\"\n+1 x\n 2 say \u201chi\u201d"),
	"edit/white-space-old-text":                leaves("a.txt", "a b\n", "-1 a   b\n+1 a b"),

	"find/absolute-path-trailing-slash-eats-a-letter": says(false, "c.ts\ndeep/d.ts\ndeep/e.spec.ts"),
	"find/git-directory-included":                     says(false, "config"),
	"find/gitignore-above-workspace":                  says(false, "a.log\na.txt"),
	"find/global-fd-ignore":                           says(false, "a.log\na.txt"),
	"find/limit-equal-to-results":                     says(false, "a.txt\nb.txt"),
	"find/limit-null":                                 says(false, "a.txt\nb.txt"),
	"find/lower-case-pattern-ignores-case":            says(false, "b.ts"),
	"find/name-with-newline-split":                    says(false, `one\ntwo.txt`),
	"find/name-with-spaces-trimmed":                   says(false, "dir/name with end  "),
	"find/path-pattern-dot-slash":                     says(false, "a.ts"),
	"find/path-pattern-matches-above":                 says(false, "No files found matching pattern"),
	"find/path-tilde":                                 outsideError,
	"find/question-mark-is-one-byte":                  says(false, "\u00e9.txt"),
	"find/unreadable-directory-no-output":             says(false, "No files found matching pattern\n\n[Not readable: d]"),

	"grep/context-fractional":                 refuses("context must be a whole number"),
	"grep/fifo-path-abort":                    all(says(true, "EINVAL: not a regular file: p"), within(300*time.Millisecond), nothingSurvives),
	"grep/file-name-with-two-dots":            says(false, "..data/deep/a.txt:1: alpha"),
	"grep/global-gitignore":                   says(false, "a.log:1: alpha\na.txt:1: alpha"),
	"grep/invalid-utf8-file-name":             says(false, "a\uFFFD.t:1: alpha"),
	"grep/limit-equal-to-matches":             says(false, "a.txt:1: hit 1\na.txt:2: hit 2\na.txt:3: hit 3"),
	"grep/limit-fractional":                   refuses("limit must be a whole number"),
	"grep/limit-null":                         says(false, "a.txt:1: hit 1\na.txt:2: hit 2\na.txt:3: hit 3"),
	"grep/path-outside":                       outsideError,
	"grep/path-symlinked-directory":           outsideError,
	"grep/ripgrep-config-honoured":            says(false, "No matches found"),
	"grep/unreadable-file-fails-whole-search": says(false, "a.txt:1: alpha\n\n[Not readable: b.txt]"),
	"grep/utf16-file-with-context":            says(false, "a.txt-1- one\na.txt:2: alpha\na.txt-3- two"),

	"ls/invalid-utf8-name":       says(false, `a\xff.t`+"\nb"),
	"ls/limit-zero":              refuses("limit must be a whole number of at least 1, not 0"),
	"ls/name-with-newline":       says(false, `one\ntwo`),
	"ls/only-dangling-symlink":   says(false, "l-gone"),
	"ls/path-outside":            outsideError,
	"ls/path-symlink-to-outside": outsideError,
	"ls/path-tilde":              outsideError,

	"read/absolute-path-outside":          outsideError,
	"read/at-prefix-hides-real-name":      says(false, "at\n"),
	"read/at-tilde":                       outsideError,
	"read/binary-with-nul":                says(true, "Cannot read a.bin: it is a binary file of 13B"),
	"read/fifo-blocks-until-abort":        all(says(true, "EINVAL: not a regular file: p"), within(200*time.Millisecond)),
	"read/limit-before-final-empty-line":  says(false, "1\n2\n3\n"),
	"read/limit-fractional":               says(true, "limit must be a whole number of at least 1, not 1.5"),
	"read/limit-negative":                 says(true, "limit must be a whole number of at least 1, not -1"),
	"read/limit-null":                     says(false, "one\ntwo\nthree\n"),
	"read/long-line-hint-is-not-quoted":   says(false, "[Line 1 is 58.6KB, exceeds 50.0KB limit. Use bash: sed -n '1p' 'my $(id) file.txt' | head -c 51200]"),
	"read/nbsp-in-real-name-unreachable":  says(false, "nbsp\n"),
	"read/proc-self-environ":              outsideError,
	"read/relative-path-trailing-slash":   refuses("ENOTDIR"),
	"read/symlink-to-outside":             outsideError,
	"read/symlinked-directory-to-outside": outsideError,
	"read/tilde-alone":                    outsideError,
	"read/tilde-path":                     outsideError,
	"read/utf16-file":                     says(false, "hi\n\n\n[Decoded from UTF-16]"),

	"write/absolute-path-outside":            outsideError,
	"write/content-null-becomes-text":        refuses("Validation failed"),
	"write/count-is-utf16-units":             says(false, "Successfully wrote 7 bytes to a.txt"), // matched on purpose
	"write/dangling-symlink-makes-target":    outsideError,
	"write/dotdot-escape":                    outsideError,
	"write/dotdot-makes-directories-outside": outsideError,
	"write/relative-path-trailing-slash":     refuses("EISDIR"),
	"write/symlink-to-outside":               outsideError,
	"write/tilde-path":                       outsideError,
}
