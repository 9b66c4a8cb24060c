package server

import (
	"errors"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
)

// keyWithSecret is a key in the response to the key's creation or rotation. No other response contains the secret.
type keyWithSecret struct {
	auth.Record
	Key string `json:"key"`
}

// createKey is POST /v1/keys. The new key has the account and the mode of the calling key, and only scopes that the calling
// key has too.
func (s *Server) createKey(c *gin.Context) (any, error) {
	var body struct {
		Name      *string  `json:"name"`
		Scopes    []string `json:"scopes"`
		ExpiresAt *string  `json:"expiresAt"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	wanted, err := newKey(body.Name, body.Scopes, body.ExpiresAt)
	if err != nil {
		return nil, err
	}
	key, secret, err := s.Keys.Create(c.Request.Context(), principal(c), wanted)
	if errors.Is(err, auth.ErrScopeNotHeld) {
		return nil, api.Invalid("scopes", "must be scopes that the calling key has")
	}
	if err != nil {
		return nil, err
	}
	s.recordKey(c, auth.KeyCreated, key.ID)
	return keyWithSecret{key.Record(time.Now()), secret}, nil
}

// recordKey records an operation of the caller on a key.
func (s *Server) recordKey(c *gin.Context, action auth.Action, keyID string) {
	p := principal(c)
	s.audit.keyOperation(action, p, s.Keys.ActorOf(p), keyID)
}

// newKey checks the members of a request for a new key. A nil member was left out.
func newKey(name *string, scopes []string, expiresAt *string) (wanted auth.NewKey, err error) {
	switch {
	case name == nil:
		return wanted, api.Invalid("name", api.Required)
	case scopes == nil:
		return wanted, api.Invalid("scopes", api.Required)
	}
	wanted.Name = *name
	if err := auth.CheckName(*name); err != nil {
		return wanted, api.Invalid("name", err.Error())
	}
	if wanted.Scopes, err = auth.ParseScopes(scopes); err != nil {
		return wanted, api.Invalid("scopes", err.Error())
	}
	if expiresAt != nil {
		if wanted.ExpiresAt, err = auth.ParseExpiry(*expiresAt, time.Now()); err != nil {
			return wanted, api.Invalid("expiresAt", err.Error())
		}
	}
	return wanted, nil
}

// listKeys is GET /v1/keys.
func (s *Server) listKeys(c *gin.Context) (any, error) {
	before, limit, err := queryBefore(c, "a page of keys")
	if err != nil {
		return nil, err
	}
	found, err := s.Keys.List(c.Request.Context(), principal(c).Owner(), auth.KeyQuery{Before: before, Limit: limit})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	records := make([]auth.Record, 0, len(found.Keys))
	for i := range found.Keys {
		records = append(records, found.Keys[i].Record(now))
	}
	return page{Data: records, Pagination: paginateBefore(found.Next)}, nil
}

// listAudit is GET /v1/audit.
func (s *Server) listAudit(c *gin.Context) (any, error) {
	before, limit, err := queryBefore(c, "a page of audit entries")
	if err != nil {
		return nil, err
	}
	found, err := s.Keys.Audit(c.Request.Context(), principal(c).Owner(), auth.AuditQuery{Before: before, Limit: limit})
	if err != nil {
		return nil, err
	}
	records := make([]auth.AuditRecord, 0, len(found.Entries))
	for i := range found.Entries {
		records = append(records, found.Entries[i].Record())
	}
	return page{Data: records, Pagination: paginateBefore(found.Next)}, nil
}

// queryBefore returns the page of a list that a query selects: up to limit items from before a time. The cursor of a page is that
// time in Unix milliseconds. So a cursor stays valid when the last item of the previous page is removed. The text list names the
// list in the error for a wrong cursor.
func queryBefore(c *gin.Context, list string) (before time.Time, limit int, err error) {
	if limit, err = queryLimit(c, defaultKeys, maxKeys); err != nil {
		return before, 0, err
	}
	text, ok := c.GetQuery("cursor")
	if !ok {
		return before, limit, nil
	}
	at, err := strconv.ParseUint(text, 10, 48)
	if err != nil || at == 0 {
		return before, 0, api.Invalid("cursor", "must be the nextCursor of "+list)
	}
	return time.UnixMilli(int64(at)), limit, nil
}

// paginateBefore returns the pagination of a page. next is the time before which the next page's items are; zero on the last
// page.
func paginateBefore(next time.Time) pagination {
	return paginate(!next.IsZero(), strconv.FormatInt(next.UnixMilli(), 10))
}

// revokeKey is DELETE /v1/keys/{keyId}. A key may revoke itself.
func (s *Server) revokeKey(c *gin.Context) (any, error) {
	id, err := keyID(c)
	if err != nil {
		return nil, err
	}
	if err := s.Keys.Revoke(c.Request.Context(), principal(c), id); err != nil {
		return nil, err
	}
	s.recordKey(c, auth.KeyRevoked, id)
	return gin.H{"revoked": true, "keyId": id}, nil
}

// rotateKey is POST /v1/keys/{keyId}/rotate. The key keeps its id. The old secret works for at most another 24 hours.
func (s *Server) rotateKey(c *gin.Context) (any, error) {
	id, err := keyID(c)
	if err != nil {
		return nil, err
	}
	if err := decodeBody(c, &struct{}{}); err != nil {
		return nil, err
	}
	key, secret, err := s.Keys.Rotate(c.Request.Context(), principal(c), id)
	if err != nil {
		return nil, err
	}
	s.recordKey(c, auth.KeyRotated, id)
	return keyWithSecret{key.Record(time.Now()), secret}, nil
}

// keyID returns the id of the key in the path. A malformed id gives the same error as an unknown key.
func keyID(c *gin.Context) (string, error) {
	id := c.Param("keyId")
	if !conversation.ValidID(auth.KeyPrefix, id) {
		return "", auth.ErrKeyNotFound
	}
	return id, nil
}
