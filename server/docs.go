package server

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
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
		s.engine.GET(path, func(c *gin.Context) {
			c.Header("Cache-Control", "no-cache")
			c.Data(http.StatusOK, "application/yaml", document)
		})
	}
	page := sync.OnceValues(renderDocs)
	s.engine.GET("/docs", s.answer(func(c *gin.Context) (any, error) {
		html, err := page()
		if err != nil {
			return nil, err
		}
		c.Header("Cache-Control", "no-cache")
		c.Header("Content-Security-Policy", web.ContentSecurityPolicy)
		c.Header("Referrer-Policy", "no-referrer")
		c.Header("X-Content-Type-Options", "nosniff")
		c.Data(http.StatusOK, "text/html; charset=utf-8", html)
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
	err = page.Execute(&html, map[string]any{
		"Intro": blocks(api.text("info", "description")), "Groups": operations(api), "Schemas": schemas(api, ""),
		"StreamIntro": blocks(stream.text("info", "description")), "Frames": frames(stream), "FrameSchemas": schemas(stream, framePrefix),
	})
	if err != nil {
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

// object is a map of a document, in the document's order.
type object yaml.MapSlice

func parseDocument(text []byte) (object, error) {
	var parsed yaml.MapSlice
	err := yaml.UnmarshalWithOptions(text, &parsed, yaml.UseOrderedMap())
	return object(parsed), err
}

// at returns what stands under the names, nil if nothing does.
func (o object) at(names ...string) any {
	var value any = yaml.MapSlice(o)
	for _, name := range names {
		members, _ := value.(yaml.MapSlice)
		value = nil
		for _, m := range members {
			if m.Key == name {
				value = m.Value
			}
		}
	}
	return value
}

func (o object) object(names ...string) object {
	members, _ := o.at(names...).(yaml.MapSlice)
	return object(members)
}

func (o object) list(names ...string) []any {
	list, _ := o.at(names...).([]any)
	return list
}

func (o object) text(names ...string) string {
	if value := o.at(names...); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// each calls f for every member that is an object.
func (o object) each(f func(name string, member object)) {
	for _, m := range o {
		if members, ok := m.Value.(yaml.MapSlice); ok {
			f(fmt.Sprint(m.Key), object(members))
		}
	}
}

// resolved returns what o refers to within the document, or o itself.
func (o object) resolved(document object) object {
	path, ok := strings.CutPrefix(o.text("$ref"), "#/")
	if !ok {
		return o
	}
	return document.object(strings.Split(path, "/")...)
}

// What the page shows.
type (
	docsGroup struct {
		Name, About string
		Operations  []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, Scope string
		About                            []docsBlock
		Parameters                       []docsField
		Body                             []docsType
		Responses                        []docsResponse
	}
	docsResponse struct {
		Status, About string
		Types         []docsType
		Headers       string
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
	// docsType is a word of a type; Link is the schema of that name, if it is one.
	docsType  struct{ Text, Link string }
	docsFrame struct {
		Name, From, About string
		Schema            []docsType
		Examples          []string
	}
)

// framePrefix sets the schemas of frames apart from those of REST.
const framePrefix = "frame-"

// operations returns the operations by tag, in the document's order.
func operations(api object) []docsGroup {
	var groups []docsGroup
	for _, tag := range api.list("tags") {
		group := docsGroup{Name: object(tag.(yaml.MapSlice)).text("name"), About: object(tag.(yaml.MapSlice)).text("description")}
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
	for _, parameter := range append(item.list("parameters"), operation.list("parameters")...) {
		p := object(parameter.(yaml.MapSlice)).resolved(api)
		f := describeField(p.text("name"), p.object("schema"), "")
		f.In, f.About, f.Required = p.text("in"), p.text("description"), p.text("required") == "true"
		o.Parameters = append(o.Parameters, f)
	}
	body := operation.object("requestBody").resolved(api)
	o.Body = typeOf(body.object("content", "application/json", "schema"), "")
	operation.object("responses").each(func(status string, response object) {
		response = response.resolved(api)
		r := docsResponse{Status: status, About: response.text("description")}
		response.object("content").each(func(mediaType string, media object) {
			if mediaType == "application/json" {
				r.Types = typeOf(media.object("schema"), "")
			} else {
				r.Types = append(r.Types, docsType{Text: mediaType + " "})
			}
		})
		var headers []string
		response.object("headers").each(func(name string, _ object) { headers = append(headers, name) })
		r.Headers = strings.Join(headers, ", ")
		o.Responses = append(o.Responses, r)
	})
	return o
}

// schemas returns the schemas of a document; their ids on the page begin with prefix.
func schemas(document object, prefix string) []docsSchema {
	var all []docsSchema
	document.object("components", "schemas").each(func(name string, schema object) {
		s := docsSchema{ID: prefix + name, Name: name, About: schema.text("description"), Bounds: bounds(schema)}
		required := schema.list("required")
		if schema.at("properties") == nil || schema.at("allOf") != nil {
			s.Type = typeOf(schema, prefix)
		}
		schema.object("properties").each(func(name string, property object) {
			f := describeField(name, property, prefix)
			for _, r := range required {
				f.Required = f.Required || r == name
			}
			s.Fields = append(s.Fields, f)
		})
		all = append(all, s)
	})
	return all
}

func describeField(name string, schema object, prefix string) docsField {
	return docsField{Name: name, Type: typeOf(schema, prefix), Bounds: bounds(schema), About: schema.text("description")}
}

// typeOf says what a value of the schema is.
func typeOf(schema object, prefix string) []docsType {
	if ref := schema.text("$ref"); ref != "" {
		file, path, _ := strings.Cut(ref, "#/")
		if file != "" {
			prefix = "" // the schema stands in the document of REST
		}
		parts := strings.Split(path, "/")
		return []docsType{{Text: strings.Join(parts[2:], "."), Link: prefix + parts[2]}}
	}
	if value := schema.at("const"); value != nil {
		return []docsType{{Text: fmt.Sprintf("%q", fmt.Sprint(value))}}
	}
	if values := schema.list("enum"); values != nil {
		return []docsType{{Text: joined(values, " | ")}}
	}
	for _, combination := range []string{"oneOf", "anyOf", "allOf"} {
		alternatives := schema.list(combination)
		if alternatives == nil || schema.at("type") != nil {
			continue
		}
		var all []docsType
		for i, alternative := range alternatives {
			if i > 0 && combination != "allOf" {
				all = append(all, docsType{Text: " or "})
			}
			all = append(all, typeOf(object(alternative.(yaml.MapSlice)), prefix)...)
		}
		return all
	}
	if items := schema.object("items"); items != nil {
		return append([]docsType{{Text: "list of "}}, typeOf(items, prefix)...)
	}
	if types := schema.list("type"); types != nil {
		return []docsType{{Text: joined(types, " or ")}}
	}
	return []docsType{{Text: schema.text("type")}}
}

// bounds says what else holds for a value of the schema.
func bounds(schema object) string {
	var all []string
	for _, keyword := range []string{
		"format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "default",
	} {
		if value := schema.at(keyword); value != nil {
			all = append(all, keyword+" "+fmt.Sprint(value))
		}
	}
	return strings.Join(all, ", ")
}

func joined(values []any, separator string) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = fmt.Sprint(v)
	}
	return strings.Join(all, separator)
}

// frames returns the frames of both sides, in the document's order.
func frames(stream object) []docsFrame {
	fromClient := make(map[string]bool)
	stream.object("operations").each(func(name string, operation object) {
		fromClient[name] = operation.text("action") == "receive"
	})
	var all []docsFrame
	stream.object("components", "messages").each(func(name string, message object) {
		f := docsFrame{Name: name, From: "server", About: message.text("summary"), Schema: typeOf(message.object("payload"), framePrefix)}
		if fromClient[name] {
			f.From = "client"
		}
		for _, example := range message.list("examples") {
			payload, err := json.Marshal(plain(object(example.(yaml.MapSlice)).at("payload")))
			if err == nil {
				f.Examples = append(f.Examples, string(payload))
			}
		}
		all = append(all, f)
	})
	return all
}

// plain returns a value of a document as package json takes it, maps in the document's order.
func plain(value any) any {
	switch v := value.(type) {
	case yaml.MapSlice:
		return object(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = plain(v[i])
		}
		return all
	}
	return value
}

// MarshalJSON writes the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			text.WriteByte(',')
		}
		value, err := json.Marshal(plain(m.Value))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%q:%s", fmt.Sprint(m.Key), value)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
