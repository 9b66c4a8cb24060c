package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
)

// script is the Lua script lua/NAME.lua. The head of that file documents KEYS, ARGV and the result. A script returns a refusal as
// a value; if it raises an error, that is a fault. A script is immutable.
type script struct {
	name     string
	is       property
	compiled func() compiled
}

// compiled is the text of a script as servers get it, with the libraries that the script uses.
type compiled struct {
	text   string
	digest any // a string, the SHA-1 of the text for EVALSHA; any, so that a command with it allocates no copy
}

// property is a set of flags that describe a script.
type property uint

const (
	reads      property = 1 << iota // the operation writes nothing; without admits, it also runs on a server that cannot write
	admits                          // admits the request before the operation (lua/lib/admission.lua)
	reserves                        // like admits, and may reserve tokens; checks the API key even of a request that is admitted
	idempotent                      // may be sent again after a lost reply: a second run changes nothing more
	durable                         // writes data that a fail-over must not lose (replicas.go)
	wakes                           // may wake waiters (lua/lib/queue.lua); run wakes the waiters of this node
)

func (sc *script) has(p property) bool { return sc.is&p != 0 }

func (sc *script) admits() bool     { return sc.has(admits | reserves) }
func (sc *script) idempotent() bool { return sc.has(reads | idempotent) }

// newScript returns the script lua/NAME.lua. The first run composes the script's text, so a process that uses another store
// composes no scripts.
func newScript(name string, is property) *script {
	return &script{name: name, is: is, compiled: sync.OnceValue(func() compiled { return compile(source(name+".lua"), is) })}
}

// compile composes an operation with the definitions that it uses, and adds the code that its properties need.
func compile(operation string, is property) compiled {
	header, operation := framed(operation, is)
	text := header + arrange(libraries().used(operation), operation)
	digest := sha1.Sum([]byte(text))
	return compiled{text: text, digest: hex.EncodeToString(digest[:])}
}

// framed returns the first line of a script, and the operation with the code that the script's properties need.
//
// Each script begins with a shebang. So the server runs the script only if the server has memory, is not a replica, and can save.
// Without the shebang, a script could fail half-way. The shebang also makes access to a key in another slot an error.
func framed(operation string, is property) (header, framed string) {
	header = "#!lua\n"
	admission := is&(admits|reserves) != 0
	if is&reads != 0 && !admission { // an admission writes
		header = "#!lua flags=no-writes\n"
	}
	if is&wakes != 0 {
		operation = "local function operate(KEYS, ARGV)\n" + operation + "end\nreturn {operate(KEYS, ARGV), WOKEN}\n"
	}
	if admission {
		operation = "return admitted(function(KEYS, ARGV)\n" + operation + "end)\n"
	}
	return header, operation
}

// malformed returns the error for a result that does not have the format documented in the script's head.
func (sc *script) malformed() error {
	return fmt.Errorf("redis: the script %s returned a malformed result", sc.name)
}

// fault converts the error of a call of the script (see the function fault). It adds the script's name if the script raised the
// error.
func (sc *script) fault(err error) error {
	if strings.HasPrefix(err.Error(), "ERR ") && missingRight(err.Error()) == "" { // a bug in the script; the error names the line
		return fmt.Errorf("redis: the script %s: %w", sc.name, err)
	}
	return fault(err)
}
