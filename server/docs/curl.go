package docs

import (
	"encoding/json"
	"strings"

	"github.com/goccy/go-yaml"
)

// This file generates the curl commands of the reference from openapi.yaml alone. A command contains shell variables for the
// ids in the path, and examples for the other required parameters. An operation has one command for each example of its body.

// command is a shell command. Name is the name of the body's example, or of the shell variable that the command sets. It is ""
// if the operation has no body.
type command struct{ Name, Text string }

// shellVariables holds the shell variables that replace parameters, by the parameter's name. Any other parameter is replaced by
// its example.
var shellVariables = map[string]string{"sessionId": "$SESSION", "messageId": "$MESSAGE", "keyId": "$KEY_ID"}

// variables returns the commands that set the shell variables. Each command creates a session, a message or a key from an
// example of the request, and takes the id from the response.
func variables(api object) (all []command) {
	for _, v := range []struct{ name, prefix, path, example string }{
		{"SESSION", "session", "/v1/sessions", "minimal"},
		{"MESSAGE", "msg", "/v1/sessions/{sessionId}/messages", "streaming"},
		{"KEY_ID", "key", "/v1/keys", "reader"},
	} {
		item := api.object("paths", v.path)
		for _, c := range commands(api, v.path, "post", item, item.object("post")) {
			if c.Name == v.example {
				text := strings.Replace(c.Text, "curl ", "curl -sS ", 1)
				all = append(all, command{v.name, v.name + "=$(" + text + " |\n  grep -o '" + v.prefix + "_[0-9A-Za-z]*' | head -n 1)"})
			}
		}
	}
	return all
}

// commands returns the curl commands of an operation: one for each example of its body, or a single command if it has no body.
func commands(api object, path, method string, item, operation object) (all []command) {
	address, query := path, ""
	words := []string{"curl" + curlOptions(operation, method)}
	for _, alternative := range operation.list("security") {
		if object(alternative.(yaml.MapSlice)).at("key") != nil {
			words = append(words, `-H "Authorization: Bearer $KEY"`)
		}
	}
	for _, p := range parametersOf(api, item, operation) {
		name, value := p.text("name"), exampleOf(p)
		switch {
		case p.text("in") == "path":
			address = strings.Replace(address, "{"+name+"}", value, 1)
		case p.text("required") != "true":
		case p.text("in") == "query":
			query += "&" + name + "=" + value
		case p.text("in") == "header":
			words = append(words, "-H "+quoted(name+": "+value))
		}
	}
	if query != "" {
		address += "?" + query[1:]
	}
	words[0] += ` "$PARLEY` + address + `"`
	examples := operation.object("requestBody", "content", "application/json", "examples")
	examples.each(func(name string, example object) {
		body, err := json.Marshal(plain(example.at("value")))
		if err == nil {
			full := append(words[:len(words):len(words)], "-H 'Content-Type: application/json'", "-d "+quoted(string(body)))
			all = append(all, command{name, strings.Join(full, " \\\n  ")})
		}
	})
	if all == nil {
		all = append(all, command{Text: strings.Join(words, " \\\n  ")})
	}
	return all
}

// curlOptions returns curl's options for an operation: -X for the method, -N for streams, so that curl does not buffer them,
// and -i for the response headers of a handshake.
func curlOptions(operation object, method string) string {
	options := ""
	if method != "get" {
		options += " -X " + strings.ToUpper(method)
	}
	if operation.at("responses", "200", "content", "text/event-stream") != nil {
		options += " -N"
	}
	if operation.at("responses", "101") != nil {
		options += " -i -N"
	}
	return options
}

// exampleOf returns the text that replaces a parameter in a command: the parameter's shell variable or its example.
func exampleOf(parameter object) string {
	if variable, found := shellVariables[parameter.text("name")]; found {
		return variable
	}
	return parameter.text("example")
}

// quoted returns a word in single quotes, for a shell.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
