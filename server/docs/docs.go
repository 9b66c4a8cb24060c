package docs

import (
	_ "embed"
	"html/template"
	"io/fs"
	"net/http"
	"sync"

	"parley/web"
)

var (
	//go:embed openapi.yaml
	openAPI []byte
	//go:embed asyncapi.yaml
	asyncAPI []byte
	//go:embed pages.html
	pagesHTML string
)

// Docs serves the documentation. Its methods may be called from any goroutine.
type Docs struct {
	pages map[string]func() (http.Handler, error) // by path, static
}

// New returns the documentation. It renders nothing: each page is rendered at its first request.
func New() *Docs {
	d := &Docs{pages: make(map[string]func() (http.Handler, error))}
	for path, document := range map[string][]byte{"/openapi.yaml": openAPI, "/asyncapi.yaml": asyncAPI} {
		d.pages[path] = sync.OnceValues(func() (http.Handler, error) {
			return web.NewFile("application/yaml", document), nil
		})
	}
	d.pages[referencePath] = page(renderReference)
	for _, name := range guideNames {
		d.pages[guidePath(name)] = page(func() ([]byte, error) { return renderGuide(name) })
	}
	for _, name := range guideImages() {
		d.pages[guidePath(name)] = sync.OnceValues(func() (http.Handler, error) { return image(name) })
	}
	return d
}

// Find returns the handler for GET and HEAD of a path; nil if the documentation has no such path. An error means that an
// embedded document is invalid.
func (d *Docs) Find(path string) (http.Handler, error) {
	if find := d.pages[path]; find != nil {
		return find()
	}
	return nil, nil
}

// page returns a function that renders a page on its first call, and returns a handler for the page.
func page(render func() ([]byte, error)) func() (http.Handler, error) {
	return sync.OnceValues(func() (http.Handler, error) {
		html, err := render()
		if err != nil {
			return nil, err
		}
		return guarded(web.NewFile("text/html; charset=utf-8", html)), nil
	})
}

// image returns a handler for an image of a guide.
func image(name string) (http.Handler, error) {
	content, err := fs.ReadFile(web.Guides(), name)
	return guarded(web.NewFile("image/svg+xml", content)), err
}

// guarded adds the headers of web.Guard.
func guarded(file *web.File) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.Guard(w.Header())
		file.ServeHTTP(w, r)
	})
}

// templates parses pages.html.
func templates() (*template.Template, error) {
	functions := template.FuncMap{"line": renderLine, "blocks": renderDescription}
	return template.New("pages").Funcs(functions).Parse(pagesHTML)
}
