package tools

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

func pngOf(t testing.TB, width, height int) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	for x := range width {
		img.Set(x, 0, color.NRGBA{uint8(x), 100, 200, 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestImagesAreBoundedBeforeTheyAreDecoded: a header that declares too many
// pixels costs nothing.
func TestImagesAreBoundedBeforeTheyAreDecoded(t *testing.T) {
	bomb := pngOf(t, 4, 4)
	binary.BigEndian.PutUint32(bomb[16:], 60_000)
	binary.BigEndian.PutUint32(bomb[20:], 60_000)
	binary.BigEndian.PutUint32(bomb[29:], crc32.ChecksumIEEE(bomb[12:29]))
	if c, err := png.DecodeConfig(bytes.NewReader(bomb)); err != nil || c.Width != 60_000 {
		t.Fatal("the bomb is none", err)
	}
	data, _, note := fitImage(bomb, "image/png", 25_000_000)
	if data != nil || note != textOmitted {
		t.Errorf("%d bytes, %q", len(data), note)
	}
}

// TestLargeImagesAreScaled: the longest side becomes 2000 pixels, JPEG stays
// JPEG, small ones are not touched.
func TestLargeImagesAreScaled(t *testing.T) {
	img, err := png.Decode(bytes.NewReader(pngOf(t, 3000, 1000)))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	data, mime, note := fitImage(b.Bytes(), imageType(b.Bytes()), 25_000_000)
	c, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || c.Width != 2000 || c.Height != 667 || format != "jpeg" || mime != "image/jpeg" || !strings.Contains(note, "original 3000x1000, displayed at 2000x667") {
		t.Errorf("%v %s %s %q %v", c, format, mime, note, err)
	}
	small := pngOf(t, 20, 10)
	if data, mime, note := fitImage(small, imageType(small), 25_000_000); !bytes.Equal(data, small) || mime != "image/png" || note != "" {
		t.Errorf("a small image changed: %s %q", mime, note)
	}
}

// TestImageTypes: the first bytes tell, and animated PNG is none.
func TestImageTypes(t *testing.T) {
	still := pngOf(t, 2, 2)
	chunk := append([]byte{0, 0, 0, 8}, "acTL\x00\x00\x00\x02\x00\x00\x00\x00"...)
	animated := append(bytes.Clone(still[:33]), binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))...)
	animated = append(animated, still[33:]...)
	for name, c := range map[string]struct {
		head []byte
		want string
	}{
		"png": {still, "image/png"}, "animated": {animated, ""}, "jpeg": {[]byte("\xff\xd8\xff\xe0 JFIF"), "image/jpeg"},
		"gif": {[]byte("GIF89a"), "image/gif"}, "webp": {[]byte("RIFF\x00\x00\x00\x00WEBPVP8L"), "image/webp"},
		"text": {[]byte("hello"), ""}, "bmp": {[]byte("BM\x00\x00"), ""},
	} {
		if got := imageType(c.head); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for head, want := range map[string][2]int{
		"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x63\x00\x00\x31\x00\x00": {100, 50},
		"RIFF\x00\x00\x00\x00WEBPVP8L\x0a\x00\x00\x00\x2f\x63\x40\x0c\x00\x00\x00\x00\x00\x00": {100, 50},
		"RIFF\x00\x00\x00\x00WEBPVP8 \x0a\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x64\x00\x32\x00": {100, 50},
	} {
		if w, h := webpSize([]byte(head)); w != want[0] || h != want[1] {
			t.Errorf("%q: %dx%d", head[12:16], w, h)
		}
	}
}
