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

// ContentSecurityPolicy allows scripts, styles and connections of the same origin only (connect-src 'self' includes ws: and
// wss:). It forbids inline scripts and styles, and markup made from strings.
const ContentSecurityPolicy = "default-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Guard sets the security headers of a response that a browser displays. They set ContentSecurityPolicy and forbid three things:
// guessing the content type, sending a referrer, and access by windows of other origins.
func Guard(header http.Header) {
	header.Set("Content-Security-Policy", ContentSecurityPolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
}

// Files returns the files that are served under /static, without the folder static in their paths.
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

// types maps the extension of each embedded file to its content type. Package mime is not used, because it also reads tables of
// the machine.
var types = map[string]string{
	"":      "text/plain; charset=utf-8", // licences
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".svg":  "image/svg+xml",
	".ts":   "text/plain; charset=utf-8",
}

// Options configure the page.
type Options struct {
	// Simulated reports whether the server uses the simulated model. The page then shows this, and its failure simulator offers the
	// commands of the simulated model. If Simulated is nil, the server never uses the simulated model.
	Simulated func() bool
}

// Handler returns a handler for the page and its files.
func Handler(options Options) Page {
	served := Page{files: make(map[string]*File), simulated: options.Simulated}
	files := Files()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		served.files["/static/"+name] = NewFile(types[path.Ext(name)], content)
		if name == page {
			served.marked = NewFile(types[".html"], bytes.Replace(content, []byte(`<html `), []byte(`<html data-model="simulated" `), 1))
		}
		return err
	})
	if err != nil {
		panic(err) // the files are in memory
	}
	served.files["/"] = served.files["/static/"+page]
	delete(served.files, "/static/"+page)
	return served
}

// Page serves the page at / and its files under /static/, for GET and HEAD. Other paths get 404 and other methods 405, in plain
// text. A server with another error format must call Has first. Page is safe for concurrent use.
type Page struct {
	files     map[string]*File
	marked    *File       // the page while the server uses the simulated model
	simulated func() bool // may be nil
}

// Has reports whether Page serves a file at path.
func (h Page) Has(path string) bool { _, ok := h.files[path]; return ok }

// ServeHTTP implements http.Handler.
func (h Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Guard(w.Header())
	f, ok := h.files[r.URL.Path]
	if r.URL.Path == "/" && h.simulated != nil && h.simulated() {
		f = h.marked
	}
	switch {
	case !ok:
		http.Error(w, "not found", http.StatusNotFound)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
	default:
		f.ServeHTTP(w, r)
	}
}
