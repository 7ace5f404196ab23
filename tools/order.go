package tools

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Names are ordered as ICU does for English, by which pi sorts, in what names
// are made of: ASCII, Latin letters with their marks, Greek, Cyrillic.
// Everything else is in the order of its code points, other signs before the
// digits, other letters behind these. The tables of x/text/collate have the
// rest, but add 1.2 MiB to a worker; the tests compare with them.
const (
	signs = "\t\n\v\f\r _-–—,;:!¡?¿.·'‘’\"“”«»()[]{}§¶@*/\\&#%`^°©®+±÷×<=>¬|¦~¤¢$£¥€"

	letters = "0123456789abcdefghiıjklmnŋopqrstŧuvwxyzþ" +
		"αβγδεζηθικλμνξοπρστυφχψω" +
		"абвгдђѓеєжзѕиіїйјклљмнњопрстћќуўфхцчџшщъыьэюя"

	// accents tell names apart only if their letters are the same.
	accents = "\u0301\u0300\u0306\u0302\u030c\u030a\u0308\u030b\u0303\u0307\u0338\u0327\u0328\u0304\u0335\u0337"
)

// spelled are letters that Unicode does not take apart, and ICU does.
var spelled = map[rune]string{
	'æ': "a\u0337e", 'œ': "o\u0337e", 'ß': "s\u0337s",
	'đ': "d\u0335", 'ð': "d\u0337", 'ħ': "h\u0335", 'ł': "l\u0335", 'ø': "o\u0338",
	'ς': "σ\u0335", 'ґ': "г\u0337",
}

var (
	signRank   = ranks(signs)
	letterRank = ranks(letters)
	markRank   = ranks(accents)
)

func ranks(s string) map[rune]rune {
	m := make(map[rune]rune)
	for _, r := range s {
		m[r] = rune(len(m)) + 1
	}
	return m
}

// Classes of characters, in their order.
const (
	otherSigns   = unicode.MaxRune
	firstLetters = 2*unicode.MaxRune + 1
	otherLetters = firstLetters + 0x10000
)

// sortKey is what a name is compared by: the ranks of its characters, then of
// its marks. Control characters do not count, nor does case.
func sortKey(name string) []rune {
	var key, second []rune
	for _, r := range norm.NFC.String(strings.ToLower(name)) {
		if letterRank[r] == 0 && r >= 0x80 {
			s, ok := spelled[r]
			if !ok {
				s = norm.NFKD.String(string(r))
			}
			for _, r := range s {
				key, second = addRanks(key, second, r)
			}
			continue
		}
		key, second = addRanks(key, second, r)
	}
	return append(append(key, 0), second...)
}

func addRanks(key, second []rune, r rune) (_, _ []rune) {
	switch {
	case signRank[r] != 0:
		key = append(key, signRank[r])
	case letterRank[r] != 0:
		key = append(key, firstLetters+letterRank[r])
	case unicode.Is(unicode.M, r):
		rank := markRank[r]
		if rank == 0 {
			rank = r
		}
		return key, append(second, 1+rank)
	case unicode.IsControl(r):
		return key, second
	case unicode.IsLetter(r), unicode.IsNumber(r):
		key = append(key, otherLetters+r)
	default:
		key = append(key, otherSigns+r)
	}
	return key, append(second, 1)
}

// sortNames sorts names of entries; a slash at the end does not count. Names
// that differ in nothing that does are in byte order.
func sortNames(names []string) {
	type entry struct {
		key  []rune
		name string
	}
	list := make([]entry, len(names))
	for i, n := range names {
		list[i] = entry{sortKey(strings.TrimSuffix(n, "/")), n}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if d := slices.Compare(a.key, b.key); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	for i := range list {
		names[i] = list[i].name
	}
}
