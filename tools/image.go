package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	_ "image/gif" // decoders that image.Decode finds
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"sync"

	"github.com/pi-worker/pi-worker/loop"
)

const (
	// maxImageSide is the longest side of an image that goes to a model, in
	// pixels.
	maxImageSide = 2000
	// maxImageBase64 is the longest image text that providers take, in bytes.
	maxImageBase64 = 4718592
)

const (
	textOmitted  = "\n[Image omitted: could not be resized below the inline image size limit.]"
	textNoImages = "\n[Current model does not support images. The image will be omitted from this request.]"
)

var pngSignature = []byte("\x89PNG\r\n\x1a\n")

// imageType tells the images that models take by their first bytes; "" for
// anything else, animated PNG included.
func imageType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte{0xFF, 0xD8, 0xFF}) && len(head) > 3 && head[3] != 0xF7:
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF8")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	case bytes.HasPrefix(head, pngSignature) && len(head) >= 33 && string(head[12:16]) == "IHDR" && !animatedPNG(head):
		return "image/png"
	}
	return ""
}

// animatedPNG looks for the animation chunk before the pixels.
func animatedPNG(head []byte) bool {
	for p := head[8:]; len(p) >= 8; {
		size := int64(binary.BigEndian.Uint32(p))
		switch string(p[4:8]) {
		case "acTL":
			return true
		case "IDAT":
			return false
		}
		if size+12 > int64(len(p)) {
			return false
		}
		p = p[size+12:]
	}
	return false
}

// readImage answers with the image itself, scaled down when it is too large.
func (w *Workspace) readImage(ctx context.Context, f io.Reader, size int64, head []byte, mime, rel string) (loop.ToolResult, error) {
	if size > w.opt.Limits.ReadBytes {
		return loop.ToolResult{}, fmt.Errorf("Cannot read %s: the image has %s, over the limit of %s",
			display(rel), formatSize(int(size)), formatSize(int(w.opt.Limits.ReadBytes)))
	}
	rest, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return loop.ToolResult{}, hostError(err, rel)
	}
	if err := aborted(ctx); err != nil {
		return loop.ToolResult{}, err
	}
	data := append(bytes.Clone(head), rest...)
	text := "Read image file [" + mime + "]"
	if !w.opt.KeepImages {
		var note string
		data, mime, note = fitImage(data, mime, w.opt.Limits.ImagePixels)
		text += note
	}
	if w.opt.NoImages {
		text += textNoImages
	}
	r := loop.TextResult(text)
	if data != nil {
		r.Content = append(r.Content, &loop.Image{Data: base64.StdEncoding.EncodeToString(data), MIMEType: mime})
	}
	return r, nil
}

// decoding is held while an image is decoded: its pixels may take 100 MB.
var decoding sync.Mutex

// fitImage gives the image as it is when it is within the limits, otherwise a
// smaller one and a note; no data when that cannot be done.
func fitImage(data []byte, mime string, maxPixels int64) (out []byte, outMIME, note string) {
	if mime == "image/webp" {
		return fitWebP(data)
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || int64(c.Width)*int64(c.Height) > maxPixels || c.Width <= 0 || c.Height <= 0 {
		return nil, mime, textOmitted
	}
	decoding.Lock()
	defer decoding.Unlock()
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, mime, textOmitted
	}
	if c.Width <= maxImageSide && c.Height <= maxImageSide && base64.StdEncoding.EncodedLen(len(data)) < maxImageBase64 {
		return data, mime, ""
	}
	return shrink(img, mime)
}

// fitWebP passes small WebP images through; there is no decoder for others.
func fitWebP(data []byte) (out []byte, mime, note string) {
	width, height := webpSize(data)
	if width == 0 || width > maxImageSide || height > maxImageSide || base64.StdEncoding.EncodedLen(len(data)) >= maxImageBase64 {
		return nil, "image/webp", textOmitted
	}
	return data, "image/webp", ""
}

// webpSize reads the size from the header; zeros if it is none.
func webpSize(d []byte) (width, height int) {
	if len(d) < 30 {
		return 0, 0
	}
	u24 := func(i int) int { return int(d[i]) | int(d[i+1])<<8 | int(d[i+2])<<16 }
	switch string(d[12:16]) {
	case "VP8X":
		return u24(24) + 1, u24(27) + 1
	case "VP8L":
		b := binary.LittleEndian.Uint32(d[21:])
		return int(b&0x3FFF) + 1, int(b>>14&0x3FFF) + 1
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(d[26:]) & 0x3FFF), int(binary.LittleEndian.Uint16(d[28:]) & 0x3FFF)
	}
	return 0, 0
}

// shrink scales an image until it is within the limits.
func shrink(img image.Image, mime string) (out []byte, outMIME, note string) {
	size := img.Bounds().Size()
	scale := min(1, float64(maxImageSide)/float64(max(size.X, size.Y)))
	for range 6 {
		width := max(1, int(math.Round(float64(size.X)*scale)))
		height := max(1, int(math.Round(float64(size.Y)*scale)))
		small := scaleImage(img, width, height)
		var b bytes.Buffer
		var err error
		if outMIME = "image/png"; mime == "image/jpeg" {
			outMIME = mime
			err = jpeg.Encode(&b, small, &jpeg.Options{Quality: 85})
		} else {
			err = png.Encode(&b, small)
		}
		if err == nil && base64.StdEncoding.EncodedLen(b.Len()) < maxImageBase64 {
			return b.Bytes(), outMIME, fmt.Sprintf(
				"\n[Image: original %dx%d, displayed at %dx%d. Multiply coordinates by %.2f to map to original image.]",
				size.X, size.Y, width, height, float64(size.X)/float64(width))
		}
		scale *= 0.75
	}
	return nil, mime, textOmitted
}

// scaleImage makes each pixel the mean of those that it covers.
func scaleImage(src image.Image, width, height int) image.Image {
	b := src.Bounds()
	dst := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		y0, y1 := span(y, height, b.Dy())
		for x := range width {
			x0, x1 := span(x, width, b.Dx())
			dst.Set(x, y, mean(src, image.Rect(b.Min.X+x0, b.Min.Y+y0, b.Min.X+x1, b.Min.Y+y1)))
		}
	}
	return dst
}

func span(i, of, size int) (from, to int) {
	from = i * size / of
	return from, max(from+1, (i+1)*size/of)
}

func mean(src image.Image, area image.Rectangle) color.Color {
	var r, g, b, a uint64
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			pr, pg, pb, pa := src.At(x, y).RGBA()
			r, g, b, a = r+uint64(pr), g+uint64(pg), b+uint64(pb), a+uint64(pa)
		}
	}
	n := uint64(area.Dx() * area.Dy())
	return color.RGBA64{uint16(r / n), uint16(g / n), uint16(b / n), uint16(a / n)}
}
