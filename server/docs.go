package server

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/goccy/go-yaml"

	"parley/web"
)

// The documents of the interface. They are written by hand, and the tests hold every request, response and frame
// against them.
var (
	//go:embed openapi.yaml
	openAPI []byte
	//go:embed asyncapi.yaml
	asyncAPI []byte
	//go:embed docs.html
	docsHTML string
)

// mountDocuments mounts the documents, and the page that shows them to people.
func (s *Server) mountDocuments() {
	for path, document := range map[string][]byte{"/openapi.yaml": openAPI, "/asyncapi.yaml": asyncAPI} {
		s.engine.GET(path, gin.WrapH(web.NewFile("application/yaml", document)))
	}
	page := sync.OnceValues(func() (*web.File, error) {
		html, err := renderDocs()
		return web.NewFile("text/html; charset=utf-8", html), err
	})
	s.engine.GET("/docs", s.handle(func(c *gin.Context) (any, error) {
		file, err := page()
		if err != nil {
			return nil, err
		}
		web.Guard(c.Writer.Header())
		file.ServeHTTP(c.Writer, c.Request)
		return nil, nil
	}))
}

// renderDocs makes the page of the two documents.
func renderDocs() ([]byte, error) {
	page, err := docsTemplate()
	if err != nil {
		return nil, err
	}
	api, err := parseDocument(openAPI)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	stream, err := parseDocument(asyncAPI)
	if err != nil {
		return nil, fmt.Errorf("asyncapi.yaml: %w", err)
	}
	var html bytes.Buffer
	if err := page.Execute(&html, contentsOf(api, stream)); err != nil {
		return nil, fmt.Errorf("the page of the docs: %w", err)
	}
	return html.Bytes(), nil
}

// docsTemplate returns the page's template; in it, spans makes text of what may have marks.
func docsTemplate() (*template.Template, error) {
	page, err := template.New("docs").Funcs(template.FuncMap{"spans": spans, "blocks": blocks}).Parse(docsHTML)
	if err != nil {
		return nil, fmt.Errorf("the template of the docs: %w", err)
	}
	return page, nil
}

// What the page shows.
type (
	docsPage struct {
		Intro, StreamIntro    []docsBlock
		Variables             []docsCommand
		Groups                []docsGroup
		Frames                []docsFrames
		Schemas, FrameSchemas []docsSchema
	}
	docsGroup struct {
		ID, Name, About string
		Operations      []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, Scope string
		About                            []docsBlock
		Parameters                       []docsField
		Body                             []docsType
		Responses                        []docsResponse
		Try                              []docsCommand
	}
	docsResponse struct {
		Status, About string
		Types         []docsType
		Headers       string // those that the operation's first response does not have
	}
	docsSchema struct {
		ID, Name, About string
		Type            []docsType
		Bounds          string
		Fields          []docsField
	}
	docsField struct {
		Name, In, Bounds, About string
		Required                bool
		Type                    []docsType
	}
	// docsType is a word of a type; Link is the schema of that name, or the code, if it is one.
	docsType   struct{ Text, Link string }
	docsFrames struct {
		ID, Name string
		Frames   []docsFrame
	}
	docsFrame struct {
		ID, Name, About string
		Schema          []docsType
		Examples        []string
	}
)

// contentsOf returns what the page shows of the two documents.
func contentsOf(api, stream object) docsPage {
	return docsPage{
		Intro: blocks(api.text("info", "description")), StreamIntro: blocks(stream.text("info", "description")),
		Variables: variables(api), Groups: operations(api), Frames: frames(stream),
		Schemas: schemas(api, ""), FrameSchemas: schemas(stream, framePrefix),
	}
}

// framePrefix sets the schemas of frames apart from those of REST.
const framePrefix = "frame-"

// operations returns the operations by tag, in the document's order.
func operations(api object) []docsGroup {
	var groups []docsGroup
	for _, tag := range api.list("tags") {
		described := object(tag.(yaml.MapSlice))
		group := docsGroup{Name: described.text("name"), About: described.text("description")}
		group.ID = "group-" + group.Name
		api.object("paths").each(func(path string, item object) {
			item.each(func(method string, operation object) {
				if tags := operation.list("tags"); len(tags) == 1 && tags[0] == group.Name {
					group.Operations = append(group.Operations, describeOperation(api, path, method, item, operation))
				}
			})
		})
		groups = append(groups, group)
	}
	return groups
}

func describeOperation(api object, path, method string, item, operation object) docsOperation {
	o := docsOperation{
		ID: operation.text("operationId"), Method: strings.ToUpper(method), Path: path,
		Summary: operation.text("summary"), About: blocks(operation.text("description")),
	}
	for _, alternative := range operation.list("security") {
		for _, scope := range object(alternative.(yaml.MapSlice)).list("key") {
			o.Scope = fmt.Sprint(scope)
		}
	}
	for _, p := range parametersOf(api, item, operation) {
		f := describeField(p.text("name"), p.object("schema"), "")
		f.In, f.About, f.Required = p.text("in"), p.text("description"), p.text("required") == "true"
		o.Parameters = append(o.Parameters, f)
	}
	body := operation.object("requestBody").resolved(api)
	o.Body = typeOf(body.object("content", "application/json", "schema"), "")
	o.Responses = describeResponses(api, operation)
	o.Try = commands(api, path, method, item, operation)
	return o
}

// parametersOf returns the parameters of an operation, those of its path first.
func parametersOf(api, item, operation object) (all []object) {
	for _, parameter := range append(item.list("parameters"), operation.list("parameters")...) {
		all = append(all, object(parameter.(yaml.MapSlice)).resolved(api))
	}
	return all
}

func describeResponses(api, operation object) (all []docsResponse) {
	named := make(map[string]bool)
	operation.object("responses").each(func(status string, response object) {
		response = response.resolved(api)
		r := docsResponse{Status: status, About: response.text("description")}
		response.object("content").each(func(mediaType string, media object) {
			if mediaType == "application/json" {
				r.Types = withCodes(api, typeOf(media.object("schema"), ""))
			} else {
				r.Types = append(r.Types, docsType{Text: mediaType + " "})
			}
		})
		var headers []string
		response.object("headers").each(func(name string, _ object) {
			if !named[name] {
				headers = append(headers, name)
			}
			named[name] = named[name] || len(all) == 0
		})
		r.Headers = strings.Join(headers, ", ")
		all = append(all, r)
	})
	return all
}

// withCodes returns the types with the codes of errors in place of the schemas that say no more.
func withCodes(api object, types []docsType) []docsType {
	for i, t := range types {
		if code := api.text("components", "schemas", t.Link, "properties", "error", "properties", "code", "const"); code != "" {
			types[i] = docsType{Text: code, Link: codePrefix + code}
		}
	}
	return types
}

// frames returns the frames by who sends them, in the document's order.
func frames(stream object) []docsFrames {
	fromClient := make(map[string]bool)
	stream.object("operations").each(func(name string, operation object) {
		fromClient[name] = operation.text("action") == "receive"
	})
	all := []docsFrames{
		{ID: "frames-client", Name: "Frames from the client"}, {ID: "frames-server", Name: "Frames from the server"},
		{ID: "frames-ai-sdk", Name: "Frames of ai-sdk.v7"},
	}
	stream.object("components", "messages").each(func(name string, message object) {
		f := docsFrame{ID: "frame." + name, Name: name, About: message.text("summary"), Schema: typeOf(message.object("payload"), framePrefix)}
		for _, example := range message.list("examples") {
			payload, err := json.Marshal(plain(object(example.(yaml.MapSlice)).at("payload")))
			if err == nil {
				f.Examples = append(f.Examples, string(payload))
			}
		}
		side := 1
		switch {
		case strings.HasPrefix(name, "ai-sdk."):
			side = 2
		case fromClient[name]:
			side = 0
		}
		all[side].Frames = append(all[side].Frames, f)
	})
	return all
}
