// Package api holds what Parley's REST endpoints and its WebSocket dialects share: the table of errors, and the strict
// decoding of requests. It depends on no HTTP framework and keeps no state, so REST and sockets give the same error for the
// same mistake.
//
// # Errors
//
// A caller sees every error as an [Error]. [Describe] converts errors to this type, by three rules:
//
//   - An [Error] stays unchanged. An error with data (a context overflow, a limit) keeps its data.
//   - Any other known error has a row in a table, with its status, code and text. To add an error, add a row.
//   - An unknown error becomes a 500 internal_error. Its cause goes to the log, never to the caller.
//
// An error text says what was wrong and what to do. It repeats no secret: no key, no ticket, no value of a query string,
// no text of a message.
//
// # Requests
//
// [Decode] decodes all bodies and all frames of parley.v1. It is stricter than encoding/json, because two programs that read
// the same bytes differently are a security problem. It refuses unknown and duplicate fields, fields in another case, wrong
// types, trailing data, NUL, invalid UTF-8 and lone surrogates. The error names the field. [Decode] has bounds (64 levels,
// 4,096 members of an object) and checks the body in one pass. So its time is linear in the size of the body, which is at most
// 1 MiB.
//
// [DecodePatch] decodes a merge patch, in which an [Optional] may be null. [MergePatch] applies a merge patch to free-form JSON.
//
// [CheckMessage] checks a message before it is sent, over REST and over a socket. Content has at most 10,000 characters
// (Unicode code points), metadata at most 16 KiB as JSON. A request that fails a check changes nothing.
package api
