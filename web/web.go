// Package web is what a browser sees: the page at / and the JavaScript client of parley.v1, embedded in the binary. It
// works offline, needs no build step and loads nothing from elsewhere.
package web

import (
	"bytes"
	"embed"
	"io/fs"
	"net/http"
	"path"
)

//go:embed static guides
var embedded embed.FS

// ContentSecurityPolicy lets the page run its own files and talk to its own server (connect-src 'self' covers ws: and
// wss: of the same origin), and nothing else: no inline script or style, no markup made from strings.
const ContentSecurityPolicy = "default-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Guard sets the headers that whatever a browser shows of ours is served under. Other origins hold no handle on it, whoever
// opened it.
func Guard(header http.Header) {
	header.Set("Content-Security-Policy", ContentSecurityPolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
}

// Files returns what is served under /static, client.js at its root.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "static")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return files
}

// Guides returns the guides: Markdown files, which package server/docs serves as pages.
func Guides() fs.FS {
	files, err := fs.Sub(embedded, "guides")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return files
}

// page is the file that is served at /.
const page = "index.html"

// types has every kind of file that we embed. Written out, because package mime asks the machine's own tables.
var types = map[string]string{
	"":      "text/plain; charset=utf-8", // licences
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".svg":  "image/svg+xml",
	".ts":   "text/plain; charset=utf-8",
}

// Options are what the page is told of its server.
type Options struct {
	// Simulated says that the model is the simulated one: the page says so too, and offers its commands.
	Simulated bool
}

// Handler returns the page.
func Handler(options Options) Page {
	served := make(Page)
	files := Files()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if name == page && options.Simulated {
			content = bytes.Replace(content, []byte(`<html `), []byte(`<html data-model="simulated" `), 1)
		}
		served["/static/"+name] = NewFile(types[path.Ext(name)], content)
		return err
	})
	if err != nil {
		panic(err) // they are in memory
	}
	served["/"] = served["/static/"+page]
	delete(served, "/static/"+page)
	return served
}

// Page serves the page at / and its files under /static/, for GET and HEAD; the rest is 404 and 405, in plain text, so whoever
// has words of its own asks Has first.
type Page map[string]*File

// Has reports whether something is served at a path.
func (h Page) Has(path string) bool { _, ok := h[path]; return ok }

// ServeHTTP implements http.Handler.
func (h Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Guard(w.Header())
	f, ok := h[r.URL.Path]
	switch {
	case !ok:
		http.Error(w, "there is nothing here", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this can only be read", http.StatusMethodNotAllowed)
	default:
		f.ServeHTTP(w, r)
	}
}
