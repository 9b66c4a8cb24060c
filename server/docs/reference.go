package docs

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// referencePath is the path of the reference, the start page of the documentation.
const referencePath = "/docs"

// renderReference renders the reference from openapi.yaml and asyncapi.yaml, with a list of the guides.
func renderReference() ([]byte, error) {
	api, err := parseDocument(openAPI)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	stream, err := parseDocument(asyncAPI)
	if err != nil {
		return nil, fmt.Errorf("asyncapi.yaml: %w", err)
	}
	contents, err := contentsOf(api, stream)
	if err != nil {
		return nil, err
	}
	return execute("reference", contents)
}

// The template data for the page of the reference.
type (
	reference struct {
		Guides                []guide
		Intro, StreamIntro    rendered
		Variables             []command
		Groups                []operationGroup
		FrameGroups           []frameGroup
		Schemas, FrameSchemas []schemaEntry
	}
	// operationGroup holds the operations of one tag.
	operationGroup struct {
		ID, Name, About string
		Operations      []operationEntry
	}
	operationEntry struct {
		ID, Method, Path, Summary, Scope, About string
		Parameters                              []fieldEntry
		Body                                    []typeWord
		Responses                               []responseEntry
		Try                                     []command
	}
	responseEntry struct {
		Status, About string
		Types         []typeWord
		Headers       string // headers that the operation's first response does not have
	}
	schemaEntry struct {
		ID, Name, About string
		Type            []typeWord
		Bounds          string
		Fields          []fieldEntry
	}
	fieldEntry struct {
		Name, In, Bounds, About string
		Required                bool
		Type                    []typeWord
	}
	// typeWord is a part of the description of a type. Link is the id of a schema or an error code on the page; "" for no
	// link.
	typeWord struct{ Text, Link string }
	// frameGroup holds the frames that one side sends, or all frames of ai-sdk.v7.
	frameGroup struct {
		ID, Name string
		Frames   []frameEntry
	}
	frameEntry struct {
		ID, Name, About string
		Schema          []typeWord
		Examples        []string
	}
)

// contentsOf returns the template data for the reference, from the OpenAPI and the AsyncAPI document.
func contentsOf(api, stream object) (reference, error) {
	r := reference{
		Variables: variables(api), Groups: operations(api), FrameGroups: frames(stream),
		Schemas: schemas(api, ""), FrameSchemas: schemas(stream, framePrefix),
	}
	var err error
	if r.Guides, err = readGuides(); err != nil {
		return r, err
	}
	if r.Intro, err = renderMarkdown(api.text("info", "description"), 1); err != nil {
		return r, err
	}
	r.StreamIntro, err = renderMarkdown(stream.text("info", "description"), 1)
	return r, err
}

// framePrefix is the prefix of the ids of frame schemas. Without this prefix, they could equal the ids of REST schemas.
const framePrefix = "frame-"

// operations returns the operations in groups by tag, in the document's order.
func operations(api object) []operationGroup {
	var groups []operationGroup
	for _, tag := range api.list("tags") {
		described := object(tag.(yaml.MapSlice))
		group := operationGroup{Name: described.text("name"), About: described.text("description")}
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

func describeOperation(api object, path, method string, item, operation object) operationEntry {
	o := operationEntry{
		ID: operation.text("operationId"), Method: strings.ToUpper(method), Path: path,
		Summary: operation.text("summary"), About: operation.text("description"),
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

// parametersOf returns the parameters of an operation: first those of its path item, then its own.
func parametersOf(api, item, operation object) (all []object) {
	for _, parameter := range append(item.list("parameters"), operation.list("parameters")...) {
		all = append(all, object(parameter.(yaml.MapSlice)).resolved(api))
	}
	return all
}

func describeResponses(api, operation object) (all []responseEntry) {
	named := make(map[string]bool)
	operation.object("responses").each(func(status string, response object) {
		response = response.resolved(api)
		r := responseEntry{Status: status, About: response.text("description")}
		response.object("content").each(func(mediaType string, media object) {
			if mediaType == "application/json" {
				r.Types = withCodes(api, typeOf(media.object("schema"), ""))
			} else {
				r.Types = append(r.Types, typeWord{Text: mediaType + " "})
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

// withCodes replaces each error schema by its error code, with a link to the table of errors.
func withCodes(api object, types []typeWord) []typeWord {
	for i, t := range types {
		if code := api.text("components", "schemas", t.Link, "properties", "error", "properties", "code", "const"); code != "" {
			types[i] = typeWord{Text: code, Link: codePrefix + code}
		}
	}
	return types
}

// frames returns the frames in groups by sender, in the document's order. The frames of ai-sdk.v7 have a group of their own.
func frames(stream object) []frameGroup {
	fromClient := make(map[string]bool)
	stream.object("operations").each(func(name string, operation object) {
		fromClient[name] = operation.text("action") == "receive"
	})
	all := []frameGroup{
		{ID: "frames-client", Name: "Frames from the client"}, {ID: "frames-server", Name: "Frames from the server"},
		{ID: "frames-ai-sdk", Name: "Frames of ai-sdk.v7"},
	}
	stream.object("components", "messages").each(func(name string, message object) {
		f := frameEntry{ID: "frame." + name, Name: name, About: message.text("summary"), Schema: typeOf(message.object("payload"), framePrefix)}
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
