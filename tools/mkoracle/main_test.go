package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"
)

// TestOracleCopyInStep holds where the oracle's folder is beside the
// repository; elsewhere the project's copy is all there is.
func TestOracleCopyInStep(t *testing.T) {
	const folder, copied = "../../../shared/oracle/tools", "../testdata/oracle.zip"
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the oracle's folder is not here")
	}
	want, err := pack(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs from %s: run mkoracle", copied, folder)
	}
}
