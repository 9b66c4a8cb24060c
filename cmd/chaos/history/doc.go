// Package history checks what the clients of a Parley server saw against what the server promises. It does no I/O: a harness
// records a [History] while faults happen, and [Check] returns the broken promises.
//
// Every message of a history has a different content. So the content identifies the message, and the check recognises a
// message that is stored twice, altered or mixed up with another one. The text of a reply is compared with the text
// that the model sent for this message.
package history
