package tools

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// diffContext is how many unchanged lines are shown around a change.
	diffContext = 4
	// maxDiffWork bounds the search for the shortest diff, in steps; beyond it
	// one block of removed and added lines is shown.
	maxDiffWork = 4_000_000
)

// diffKind is what a run of lines is.
type diffKind byte

const (
	diffSame diffKind = iota
	diffRemoved
	diffAdded
)

// diffPart is a run of lines of one kind.
type diffPart struct {
	kind diffKind
	n    int
	prev *diffPart
}

// lineDiff gives the parts of a shortest line diff, in order. Of several
// shortest ones it takes the one that pi's library takes.
func lineDiff(before, after []string) []diffPart {
	a, b := internLines(before, after)
	d := differ{a: a, b: b, best: map[int]*diffPath{}, low: -len(a) - len(b), high: len(a) + len(b)}
	last, ok := d.search()
	if !ok {
		return plainDiff(a, b)
	}
	var parts []diffPart
	for ; last != nil; last = last.prev {
		parts = append(parts, diffPart{kind: last.kind, n: last.n})
	}
	slices.Reverse(parts)
	return parts
}

func internLines(before, after []string) (a, b []int) {
	ids := map[string]int{}
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			id, ok := ids[l]
			if !ok {
				id = len(ids)
				ids[l] = id
			}
			out[i] = id
		}
		return out
	}
	return number(before), number(after)
}

// diffPath is the farthest path on one diagonal: old is the last line used of
// the old text.
type diffPath struct {
	old  int
	last *diffPart
}

// differ is Myers' greedy search. A diagonal is the position in the old text
// minus that in the new one.
type differ struct {
	a, b      []int
	best      map[int]*diffPath
	low, high int // diagonals that can still lead to the end
	work      int
}

func (d *differ) search() (*diffPart, bool) {
	first := &diffPath{old: -1}
	if d.follow(first, 0) {
		return first.last, true
	}
	d.best[0] = first
	for length := 1; length <= len(d.a)+len(d.b); length++ {
		from := max(d.low, -length)
		if (from+length)%2 != 0 {
			from++
		}
		for diagonal := from; diagonal <= min(d.high, length); diagonal += 2 {
			if d.work++; d.work > maxDiffWork {
				return nil, false
			}
			if path := d.step(diagonal); path != nil {
				return path.last, true
			}
		}
	}
	return nil, false
}

// step extends the better neighbour by one line and then by what is the same.
// It returns the path that is at the end of both texts.
func (d *differ) step(diagonal int) *diffPath {
	remove, add := d.best[diagonal-1], d.best[diagonal+1]
	delete(d.best, diagonal-1)
	canAdd := add != nil && add.old-diagonal >= 0 && add.old-diagonal < len(d.b)
	canRemove := remove != nil && remove.old+1 < len(d.a)
	var path *diffPath
	switch {
	case !canAdd && !canRemove:
		delete(d.best, diagonal)
		return nil
	case !canRemove, canAdd && remove.old < add.old:
		path = &diffPath{add.old, extend(add.last, diffAdded, 1)}
	default:
		path = &diffPath{remove.old + 1, extend(remove.last, diffRemoved, 1)}
	}
	if d.follow(path, diagonal) {
		return path
	}
	d.best[diagonal] = path
	if path.old+1 >= len(d.a) {
		d.high = min(d.high, diagonal-1)
	}
	if path.old-diagonal+1 >= len(d.b) {
		d.low = max(d.low, diagonal+1)
	}
	return nil
}

// follow goes over equal lines; true at the end of both texts.
func (d *differ) follow(p *diffPath, diagonal int) bool {
	n := 0
	for p.old+1 < len(d.a) && p.old-diagonal+1 < len(d.b) && d.a[p.old+1] == d.b[p.old-diagonal+1] {
		p.old++
		n++
	}
	d.work += n / 16
	if n > 0 {
		p.last = extend(p.last, diffSame, n)
	}
	return p.old+1 >= len(d.a) && p.old-diagonal+1 >= len(d.b)
}

func extend(last *diffPart, kind diffKind, n int) *diffPart {
	if last != nil && last.kind == kind {
		return &diffPart{kind, last.n + n, last.prev}
	}
	return &diffPart{kind, n, last}
}

// plainDiff shows all between the common beginning and end as one change.
func plainDiff(a, b []int) []diffPart {
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	parts := []diffPart{
		{kind: diffSame, n: head}, {kind: diffRemoved, n: len(a) - head - tail},
		{kind: diffAdded, n: len(b) - head - tail}, {kind: diffSame, n: tail},
	}
	return slices.DeleteFunc(parts, func(p diffPart) bool { return p.n == 0 })
}

// formatDiff writes a diff the way pi shows it, and the number of the first
// changed line in the new text (0: none).
func formatDiff(before, after string) (text string, firstChanged int) {
	a, b := splitKeep(before), splitKeep(after)
	f := diffFormat{oldLine: 1, newLine: 1}
	f.width = len(fmt.Sprint(max(strings.Count(before, "\n"), strings.Count(after, "\n")) + 1))
	parts := lineDiff(a, b)
	for i, p := range parts {
		switch p.kind {
		case diffRemoved, diffAdded:
			if firstChanged == 0 {
				firstChanged = f.newLine
			}
			f.changed(p, a, b)
		default:
			f.same(a[f.oldLine-1:f.oldLine-1+p.n], i > 0, i < len(parts)-1)
		}
	}
	return strings.Join(f.out, "\n"), firstChanged
}

// splitKeep cuts text into lines that keep their newlines.
func splitKeep(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

type diffFormat struct {
	width            int
	oldLine, newLine int
	out              []string
}

func (f *diffFormat) line(sign byte, number int, line string) {
	f.out = append(f.out, fmt.Sprintf("%c%*d %s", sign, f.width, number, strings.TrimSuffix(line, "\n")))
}

func (f *diffFormat) gap() { f.out = append(f.out, fmt.Sprintf(" %*s ...", f.width, "")) }

func (f *diffFormat) changed(p diffPart, a, b []string) {
	for range p.n {
		if p.kind == diffAdded {
			f.line('+', f.newLine, b[f.newLine-1])
			f.newLine++
		} else {
			f.line('-', f.oldLine, a[f.oldLine-1])
			f.oldLine++
		}
	}
}

// same shows the lines next to a change before or after them.
func (f *diffFormat) same(lines []string, after, before bool) {
	lead, tail := 0, 0
	if after {
		lead = diffContext
	}
	if before {
		tail = diffContext
	}
	if lead+tail >= len(lines) {
		lead, tail = len(lines), 0
	}
	for i, l := range lines {
		switch {
		case i < lead || i >= len(lines)-tail:
			f.line(' ', f.oldLine+i, l)
		case i == lead:
			f.gap()
		}
	}
	f.oldLine += len(lines)
	f.newLine += len(lines)
}
