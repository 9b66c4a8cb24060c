package openai

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"syscall"
)

// Problem is the reason why [Probe] cannot use a model server, as a word that programs can compare. It is an error.
type Problem string

// The problems of a model server. The table problems has the text of each.
const (
	ConnectionRefused Problem = "connection_refused"
	UnknownHost       Problem = "unknown_host"
	Silent            Problem = "timeout"
	Untrusted         Problem = "tls"
	Broken            Problem = "connection_broken"
	WrongKey          Problem = "wrong_key"
	MissingVersion    Problem = "missing_version"
	NotAnAPI          Problem = "not_an_api"
	UnknownModel      Problem = "unknown_model"
	NoChatModel       Problem = "no_chat_model"
	ServerError       Problem = "server_error"
)

// problems says what each problem means, and what the operator can do. The texts contain nothing from the configuration or from
// the server, so they may be public.
var problems = map[Problem]struct{ meaning, advice string }{
	ConnectionRefused: {"the model server refused the connection", "start the model server, or correct the host and port of the base URL"},
	UnknownHost:       {"the host of the model server is unknown", "correct the base URL, or check the name service of this machine"},
	Silent:            {"the model server did not answer in time", "check the network between the two machines, and the load of the model server"},
	Untrusted: {"the TLS connection to the model server failed",
		"use http:// if the server has no TLS; otherwise install its certificate authority on this machine"},
	Broken:   {"the connection to the model server broke", "check that the base URL names a model server, and read the log of that server"},
	WrongKey: {"the model server refused the API key", "correct the API key"},
	MissingVersion: {"the base URL lacks the version of the API: the model server answers below /v1",
		"append /v1 to the base URL"},
	NotAnAPI: {"the server at the base URL does not answer as OpenAI's API does", "correct the base URL: it must include the version, for example /v1"},
	UnknownModel: {"the model server does not have the model",
		"correct the name of the model, or install the model on the server"},
	NoChatModel: {"the model server lists no chat model", "install a chat model on the server, or configure the name of the model"},
	ServerError: {"the model server reports an error or is not ready", "wait until it has loaded its model; otherwise read the log of that server"},
}

// Problems returns all problems.
func Problems() []Problem {
	all := make([]Problem, 0, len(problems))
	for p := range problems {
		all = append(all, p)
	}
	return all
}

// Meaning says what is wrong, as a clause without a full stop.
func (p Problem) Meaning() string { return problems[p].meaning }

// Advice says what the operator can do.
func (p Problem) Advice() string { return problems[p].advice }

func (p Problem) Error() string { return p.Meaning() }

// ErrRateLimited means that the server refused the requests of [Probe] because there were too many (429). That shows nothing about
// the model.
var ErrRateLimited = errors.New("the model server limits the requests of this server")

// problemOf returns the problem behind an error of net/http.
func problemOf(err error) Problem {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && !dns.IsTimeout {
		return UnknownHost
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return ConnectionRefused
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	if certificate || record || alert || errors.Is(err, http.ErrSchemeMismatch) {
		return Untrusted
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return Silent
	}
	return Broken
}

// errorOfStatus returns what the status of a response shows: nil for 200, a Problem, or ErrRateLimited.
func errorOfStatus(status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusTooManyRequests:
		return ErrRateLimited
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return WrongKey
	case status >= 500 && status != http.StatusNotImplemented:
		return ServerError
	}
	return NotAnAPI
}
