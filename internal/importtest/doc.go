// Package importtest holds tests of the source itself: which folder may
// import which, and a few habits that no linter knows. It parses the files
// itself instead of asking the go command, so that the test cache sees every
// file that it depends on.
package importtest
