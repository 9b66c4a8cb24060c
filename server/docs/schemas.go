package docs

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// schemas returns the schemas of a document. On the page, their ids begin with prefix.
func schemas(document object, prefix string) []schemaEntry {
	var all []schemaEntry
	document.object("components", "schemas").each(func(name string, schema object) {
		s := schemaEntry{ID: prefix + name, Name: name, About: schema.text("description"), Bounds: bounds(schema)}
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

func describeField(name string, schema object, prefix string) fieldEntry {
	return fieldEntry{Name: name, Type: typeOf(schema, prefix), Bounds: bounds(schema), About: schema.text("description")}
}

// typeOf returns the description of a schema's type, with links to the schemas that it names.
func typeOf(schema object, prefix string) []typeWord {
	if ref := schema.text("$ref"); ref != "" {
		file, path, _ := strings.Cut(ref, "#/")
		if file != "" {
			prefix = "" // a reference from asyncapi.yaml to openapi.yaml
		}
		parts := strings.Split(path, "/")
		return []typeWord{{Text: strings.Join(parts[2:], "."), Link: prefix + parts[2]}}
	}
	if value := schema.at("const"); value != nil {
		return []typeWord{{Text: fmt.Sprintf("%q", fmt.Sprint(value))}}
	}
	if values := schema.list("enum"); values != nil {
		return []typeWord{{Text: joined(values, " | ")}}
	}
	for _, combination := range []string{"oneOf", "anyOf", "allOf"} {
		alternatives := schema.list(combination)
		if alternatives == nil || schema.at("type") != nil {
			continue
		}
		var all []typeWord
		for i, alternative := range alternatives {
			if i > 0 && combination != "allOf" {
				all = append(all, typeWord{Text: " or "})
			}
			all = append(all, typeOf(object(alternative.(yaml.MapSlice)), prefix)...)
		}
		return all
	}
	if items := schema.object("items"); items != nil {
		return append([]typeWord{{Text: "list of "}}, typeOf(items, prefix)...)
	}
	if types := schema.list("type"); types != nil {
		return []typeWord{{Text: joined(types, " or ")}}
	}
	return []typeWord{{Text: schema.text("type")}}
}

// bounds returns the constraints and the default of a schema as text.
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
