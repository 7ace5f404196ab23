// Package mcptool gives agents the tools of MCP servers, over stdio or
// streamable HTTP, through the official SDK.
//
//	set, err := mcptool.Open(ctx, mcptool.Config{Servers: []mcptool.Server{
//		{Name: "files", Command: "mcp-files", Args: []string{"--root", "/data"}},
//		{Name: "wiki", URL: "https://wiki.example/mcp"},
//	}})
//	…
//	defer set.Close()
//	list, missing := set.Tools("files_*", "wiki_search")
//
// A server's tool is named <server>_<tool>. One connection a server serves all
// sessions. A server that dies is started again with growing pauses; meanwhile
// its tools stay listed, so that what the model is told does not change, and
// calls are answered with an error result that says so. Servers that are not
// there when Open is called come when they come.
//
// Servers are trusted as far as their configuration is: they run with the
// worker's rights, but with an environment of their own.
package mcptool
