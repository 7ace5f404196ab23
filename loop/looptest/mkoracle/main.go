// Command mkoracle packs a folder of the loop's oracle into one zip, the same
// bytes for the same folder:
//
//	go run ./loop/looptest/mkoracle ../shared/oracle/loop loop/looptest/testdata/oracle.zip
package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: mkoracle <folder> <zip>")
		os.Exit(2)
	}
	b, err := pack(os.DirFS(os.Args[1]))
	if err == nil {
		err = os.WriteFile(os.Args[2], b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkoracle:", err)
		os.Exit(1)
	}
}

// pack zips every *.json of the folder, sorted, without times.
func pack(fsys fs.FS) ([]byte, error) {
	files, err := fs.Glob(fsys, "*/*.json")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range files {
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(b); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
