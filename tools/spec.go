package tools

// descriptions tell the model what each tool does.
var descriptions = map[string]string{
	"read": "Read a file of the workspace. Text comes back as it is, at most 2000 lines or 50 KB at a time; " +
		"use offset and limit to page through longer files. JPEG, PNG, GIF and WebP files come back as images.",
	"write": "Create a file or replace its whole content. Missing parent directories are made. " +
		"To change part of a file use edit.",
	"edit": "Change parts of one text file. Every oldText must occur exactly once in the file as it was before the call, " +
		"and the replaced parts must not overlap; join changes that are close together into one.",
	"bash": "Run a shell command in the workspace and return its output, both streams together. " +
		"Only the last 2000 lines or 50 KB are returned; the whole output of a longer run is kept in a file. " +
		"Nothing that the command starts outlives it.",
	"grep": "Search the contents of files for a regular expression or a literal text. " +
		"Results have path and line number. Files that .gitignore excludes are left out. " +
		"At most 100 matches or 50 KB; long lines are cut.",
	"find": "Find files by a glob pattern. Results are paths relative to the searched directory. " +
		"Files that .gitignore excludes are left out. At most 1000 results or 50 KB.",
	"ls": "List the entries of a directory in alphabetical order, hidden ones included; " +
		"directories end with a slash. At most 500 entries or 50 KB.",
}

// parameters are the JSON schemas, pi's with our own descriptions.
var parameters = map[string]string{
	"read": `{"type":"object","required":["path"],"properties":{
"path":{"type":"string","description":"File to read, relative to the workspace"},
"offset":{"type":"number","description":"First line to return, counted from 1"},
"limit":{"type":"number","description":"How many lines to return at most"}}}`,
	"write": `{"type":"object","required":["path","content"],"properties":{
"path":{"type":"string","description":"File to write, relative to the workspace"},
"content":{"type":"string","description":"The file's whole new content"}}}`,
	"edit": `{"type":"object","required":["path","edits"],"properties":{
"path":{"type":"string","description":"File to change, relative to the workspace"},
"edits":{"type":"array","description":"Replacements, each made in the original file, not in the result of the one before",
"items":{"type":"object","required":["oldText","newText"],"properties":{
"oldText":{"type":"string","description":"Text to replace; must occur exactly once"},
"newText":{"type":"string","description":"Text that takes its place"}},"additionalProperties":false}}},
"additionalProperties":false}`,
	"bash": `{"type":"object","required":["command"],"properties":{
"command":{"type":"string","description":"Command for the shell"},
"timeout":{"type":"number","description":"Seconds after which the command is ended"}}}`,
	"grep": `{"type":"object","required":["pattern"],"properties":{
"pattern":{"type":"string","description":"Regular expression, or the text itself if literal is set"},
"path":{"type":"string","description":"Directory or file to search; the workspace if absent"},
"glob":{"type":"string","description":"Only files whose path matches, for example *.go or src/**/*.ts"},
"ignoreCase":{"type":"boolean","description":"Upper and lower case are the same"},
"literal":{"type":"boolean","description":"The pattern is plain text"},
"context":{"type":"number","description":"Lines to show before and after each match"},
"limit":{"type":"number","description":"How many matches to return at most; 100 if absent"}}}`,
	"find": `{"type":"object","required":["pattern"],"properties":{
"pattern":{"type":"string","description":"Glob, for example *.ts, **/*.json or src/**/*_test.go"},
"path":{"type":"string","description":"Directory to search; the workspace if absent"},
"limit":{"type":"number","description":"How many results to return at most; 1000 if absent"}}}`,
	"ls": `{"type":"object","properties":{
"path":{"type":"string","description":"Directory to list; the workspace if absent"},
"limit":{"type":"number","description":"How many entries to return at most; 500 if absent"}}}`,
}
