package server

import (
	"hash/maphash"
	"net/http"
	"sync"
	"time"

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

	// maxPages is the number of pages of a list, and of previews of a context, that the server builds at the same time for one
	// account and mode. A page occupies several times its size while it is built, up to some 10 MB. Eight keep all cores of
	// usual machines busy.
	maxPages = 8
	// pageWait is the longest time that a request for a page waits for other pages. A page is built in milliseconds.
	pageWait = 5 * time.Second
	// pageGroups is the number of groups of accounts. The accounts of a group share maxPages. With more groups, two busy
	// accounts share a group more rarely. With fewer groups, the pages of all accounts together need less memory.
	pageGroups = 64
)

// pages limits the pages that are built at the same time, for each group of accounts. A limit for each account would need code
// that forgets idle accounts. The methods of pages may be called from any goroutine.
type pages struct {
	seed   maphash.Seed              // static
	groups [pageGroups]chan struct{} // static; each holds a value for each page that is being built
}

func newPages() *pages {
	p := &pages{seed: maphash.MakeSeed()}
	for i := range p.groups {
		p.groups[i] = make(chan struct{}, maxPages)
	}
	return p
}

// begin waits until the owner may build a page. The caller must call end when the page is built. Further calls of end do
// nothing. The error is [api.ErrPagesBusy], or the error of the caller's context.
func (p *pages) begin(c *gin.Context, owner conversation.Owner) (end func(), err error) {
	group := p.groups[maphash.Comparable(p.seed, owner)%pageGroups]
	late := time.NewTimer(pageWait)
	defer late.Stop()
	select {
	case group <- struct{}{}:
		return sync.OnceFunc(func() { <-group }), nil
	case <-late.C:
		return nil, api.ErrPagesBusy
	case <-c.Request.Context().Done():
		return nil, c.Request.Context().Err()
	}
}

// keyEndPage is the name under which a gin context stores the function that ends the building of a page.
const keyEndPage = "parley.endPage"

// page returns a handler that calls h when the caller's account may build a page.
func (s *Server) page(h handler) handler {
	return func(c *gin.Context) (any, error) {
		end, err := s.pages.begin(c, api.Owner(principal(c)))
		if err != nil {
			return nil, err
		}
		c.Set(keyEndPage, end)
		return h(c)
	}
}

// endPage ends the building of a page, if the request is for a page.
func endPage(c *gin.Context) {
	if end, ok := c.Get(keyEndPage); ok {
		end.(func())()
	}
}

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
	endPage(c)
	p, known := c.Get(keyPrincipal)
	if !known || n < minUnread || c.Request.Method != http.MethodGet {
		write()
		return
	}
	owner := api.Owner(p.(auth.Principal))
	if !s.unread.add(owner, n) {
		s.writeRefusal(c, api.ErrUnread)
		return
	}
	defer s.unread.remove(owner, n)
	write()
}
