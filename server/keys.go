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
	return keyWithSecret{key.Record(time.Now()), secret}, nil
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
	query, err := queryKeys(c)
	if err != nil {
		return nil, err
	}
	found, err := s.Keys.List(c.Request.Context(), principal(c).Owner(), query)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	records := make([]auth.Record, 0, len(found.Keys))
	for i := range found.Keys {
		records = append(records, found.Keys[i].Record(now))
	}
	more := !found.Next.IsZero()
	return page{Data: records, Pagination: paginate(more, strconv.FormatInt(found.Next.UnixMilli(), 10))}, nil
}

// queryKeys returns the page of keys that a query selects. The cursor of a page is the time before which its keys were created,
// in Unix milliseconds. So a cursor stays valid when the last key of the previous page is removed.
func queryKeys(c *gin.Context) (query auth.KeyQuery, err error) {
	if query.Limit, err = queryLimit(c, defaultKeys, maxKeys); err != nil {
		return query, err
	}
	text, ok := c.GetQuery("cursor")
	if !ok {
		return query, nil
	}
	before, err := strconv.ParseUint(text, 10, 48)
	if err != nil || before == 0 {
		return query, api.Invalid("cursor", "must be the nextCursor of a page of keys")
	}
	query.Before = time.UnixMilli(int64(before))
	return query, nil
}

// revokeKey is DELETE /v1/keys/{keyId}. A key may revoke itself.
func (s *Server) revokeKey(c *gin.Context) (any, error) {
	id, err := keyID(c)
	if err != nil {
		return nil, err
	}
	if err := s.Keys.Revoke(c.Request.Context(), principal(c).Owner(), id); err != nil {
		return nil, err
	}
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
	key, secret, err := s.Keys.Rotate(c.Request.Context(), principal(c).Owner(), id)
	if err != nil {
		return nil, err
	}
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
