// Package docs serves the documentation: the API reference at /docs, the guides at /docs/guides/NAME, and the two
// machine-readable documents, /openapi.yaml and /asyncapi.yaml.
//
// # Sources
//
// openapi.yaml (REST) and asyncapi.yaml (the WebSocket) are written by hand and embedded here. They are the contract: the
// tests of package server validate every request, response and frame against them. The guides are the Markdown files in
// web/guides, embedded by package web, so that readers of the repository see the same text as on the server.
//
// # What is generated
//
// The reference is generated from the two documents alone. It lists operations, schemas and frames. Each operation has a curl
// command, which a test runs. Descriptions and guides are CommonMark with tables, rendered by goldmark. Raw HTML is dropped,
// so a page cannot contain anything that its Content-Security-Policy forbids.
//
// A guide's headings get the ids that GitHub gives them, so a link with a fragment works on GitHub and on the served page.
// Links between files of the repository become links between served pages (see the function served). In a guide's file, the
// comments <!-- contents --> and <!-- /contents --> enclose a list of contents. The served page generates its own list from
// the headings. A test compares the list in the file with the headings. The images of guides are SVG files beside them.
//
// # Rendering
//
// Each page is rendered once, at its first request, and kept in memory. The reference takes some 50 ms and 300 KB. Pages are
// served compressed, with an ETag, under the policy of web.Guard.
package docs
