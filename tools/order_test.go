package tools

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	"pgregory.net/rapid"
)

// byCollate is the order that sortNames has to give.
func byCollate(c *collate.Collator, buf *collate.Buffer, names []string) []string {
	names = slices.Clone(names)
	key := func(n string) []byte {
		defer buf.Reset()
		return slices.Clone(c.KeyFromString(buf, strings.ToLower(strings.TrimSuffix(n, "/"))))
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(slices.Compare(key(a), key(b)), strings.Compare(a, b))
	})
	return names
}

func TestNamesAreInTheOrderOfICU(t *testing.T) {
	c, buf := collate.New(language.English), new(collate.Buffer)
	alphabet := []rune("aaabcdefghijklmnopqrstuvwxyzABCZ0123456789" + signs + "àáâãäåçèéêëìíîïñòóôõöùúûüýÿÀÉÜčďěňřšťžąęłńśźżőűøđħŧßæœðłŋı" +
		"αβγδεζηθικλμνξοπρσςτυφχψωάέή" + "абвгґдђѓеёєжзѕиіїйјклљмнњопрстћќуўфхцчџшщъыьэюяЯ" + "あ中我")
	name := rapid.StringOfN(rapid.SampledFrom(alphabet), 1, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(name, 2, 12).Draw(t, "names")
		want := byCollate(c, buf, names)
		sortNames(names)
		if !slices.Equal(names, want) {
			t.Fatalf("sorted %q, want %q", names, want)
		}
	})
}

func TestOtherNamesHaveOneOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.String()).Draw(t, "names")
		back := slices.Clone(names)
		slices.Reverse(back)
		sortNames(names)
		sortNames(back)
		if !slices.Equal(names, back) {
			t.Fatalf("%q, and in the reverse %q", names, back)
		}
	})
}
