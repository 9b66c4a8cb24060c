package server

import (
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
)

const (
	// maxUnread is the number of bytes that the unread responses of one account and mode may occupy. A client that requests
	// large pages and does not read them would otherwise take 1.5 MB of memory with each request, until its connections are cut.
	// 16 MiB are ten of the largest usual pages at once.
	maxUnread = 16 << 20
	// minUnread is the size from which a response counts. Most of a smaller one is in the buffers of the connection.
	minUnread = 64 << 10
)

// unreadBytes counts the bytes of the responses that each account and mode has requested and not yet read.
type unreadBytes struct {
	mu      sync.Mutex
	pending map[conversation.Owner]int // guarded by mu; without owners that have none
}

// add counts a response of n bytes. It returns false if the owner has other unread responses, and the sum is too large.
func (u *unreadBytes) add(owner conversation.Owner, n int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.pending[owner]
	if before > 0 && before+n > maxUnread {
		return false
	}
	if u.pending == nil {
		u.pending = make(map[conversation.Owner]int)
	}
	u.pending[owner] = before + n
	return true
}

// remove ends the effect of add.
func (u *unreadBytes) remove(owner conversation.Owner, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pending[owner] -= n; u.pending[owner] <= 0 {
		delete(u.pending, owner)
	}
}

// writeBounded calls write, which writes a response of n bytes, unless the caller's account has too many unread responses. The
// response is then 503. Only a GET is refused, because it has no effect that the caller would have to learn about.
func (s *Server) writeBounded(c *gin.Context, n int, write func()) {
	p, known := c.Get(keyPrincipal)
	if !known || n < minUnread || c.Request.Method != http.MethodGet {
		write()
		return
	}
	owner := api.Owner(p.(auth.Principal))
	if !s.unread.add(owner, n) {
		e, _ := api.Describe(api.ErrUnread)
		s.writeError(c, e)
		return
	}
	defer s.unread.remove(owner, n)
	write()
}
