// Package models holds the configured models, and what the server has learned about each of them.
//
// A [Set] is the list of the configured models. It does not change while the process runs. A [Model] is one of them: it implements
// [stream.Model] with the client of its server.
package models
