package server

import (
	"encoding/json"

	"github.com/gin-gonic/gin"

	"parley/conversation"
	"parley/server/api"
	"parley/stream/wire"
)

// createSession is POST /v1/sessions.
func (s *Server) createSession(c *gin.Context) (any, error) {
	var body struct {
		UserID        *string                     `json:"userId"`
		Metadata      json.RawMessage             `json:"metadata"`
		Instructions  api.Optional[string]        `json:"instructions"`
		ContextConfig api.Optional[contextConfig] `json:"contextConfig"`
		ModelConfig   api.Optional[modelConfig]   `json:"modelConfig"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	switch {
	case body.UserID == nil:
		return nil, api.Invalid("userId", api.Required)
	case !conversation.ValidID(conversation.UserPrefix, *body.UserID):
		return nil, api.Invalid("userId", mustBeID(conversation.UserPrefix))
	}
	countFor(c, *body.UserID) // also if the rest of the body is invalid
	if !api.ValidMetadata(body.Metadata) {
		return nil, api.Invalid("metadata", api.WrongMetadata)
	}
	session := conversation.Session{Metadata: body.Metadata, Context: conversation.DefaultContextConfig}
	requested := settings{Instructions: body.Instructions, ContextConfig: body.ContextConfig, ModelConfig: body.ModelConfig}
	if err := s.change(&requested)(&session); err != nil {
		return nil, err
	}
	wanted := conversation.NewSession{
		UserID: *body.UserID, Metadata: session.Metadata, Context: session.Context,
		Instructions: session.Instructions, InstructionTokens: session.InstructionTokens, Model: session.Model,
	}
	var err error
	if wanted.Idempotency, err = api.Idempotency(headerIdempotencyKey, headerKey(c), wanted); err != nil {
		return nil, err
	}
	made, err := s.Conversation.Store.CreateSession(c.Request.Context(), api.Owner(principal(c)), wanted)
	if err != nil {
		return nil, err
	}
	session = made.Session
	if made.Replayed { // the same response as to the first request
		c.Header(headerReplayed, "true")
		session.MessageCount, session.TokenUsage = 0, conversation.TokenUsage{}
	}
	return created{
		SessionID: session.ID, UserID: session.UserID, CreatedAt: session.CreatedAt, ExpiresAt: session.ExpiresAt,
		MessageCount: session.MessageCount, TokenUsage: session.TokenUsage,
	}, nil
}

// created is a session in the response to POST /v1/sessions.
type created struct {
	SessionID    string                  `json:"sessionId"`
	UserID       string                  `json:"userId"`
	CreatedAt    conversation.Time       `json:"createdAt"`
	ExpiresAt    conversation.Time       `json:"expiresAt"`
	MessageCount int                     `json:"messageCount"`
	TokenUsage   conversation.TokenUsage `json:"tokenUsage"`
}

// session is a session in all other responses.
type session struct {
	SessionID    string                  `json:"sessionId"`
	UserID       string                  `json:"userId"`
	CreatedAt    conversation.Time       `json:"createdAt"`
	ExpiresAt    conversation.Time       `json:"expiresAt"`
	LastActivity conversation.Time       `json:"lastActivity"`
	MessageCount int                     `json:"messageCount"`
	TokenUsage   conversation.TokenUsage `json:"tokenUsage"`
	Metadata     json.RawMessage         `json:"metadata"`
	Instructions string                  `json:"instructions,omitempty"`
	*configs
	Stream *resume `json:"stream,omitempty"`
}

// configs are the members of a session that a list leaves out, together with the instructions.
type configs struct {
	ContextConfig conversation.ContextConfig `json:"contextConfig"`
	ModelConfig   conversation.ModelConfig   `json:"modelConfig"`
}

// resume holds the cursor after the last change that a response includes. A client that subscribes with this cursor misses
// nothing and sees nothing twice.
type resume struct {
	Cursor string `json:"cursor"`
}

func sessionShape(s conversation.Session) session {
	metadata := s.Metadata
	if metadata == nil {
		metadata = json.RawMessage("{}")
	}
	return session{
		SessionID: s.ID, UserID: s.UserID, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, LastActivity: s.LastActivity,
		MessageCount: s.MessageCount, TokenUsage: s.TokenUsage, Metadata: metadata,
	}
}

// wholeSession returns the session with its settings.
func wholeSession(s conversation.Session) session {
	shape := sessionShape(s)
	shape.Instructions, shape.configs = s.Instructions, &configs{s.Context, s.Model}
	return shape
}

// getSession is GET /v1/sessions/{sessionId}.
func (s *Server) getSession(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	found, position, err := s.Conversation.Session(c.Request.Context(), api.Owner(principal(c)), id)
	if err != nil {
		return nil, err
	}
	shape := wholeSession(found)
	shape.Stream = &resume{Cursor: wire.Cursor(id, position)}
	return shape, nil
}

// updateSession is PATCH /v1/sessions/{sessionId}. A repeat has no further effect.
func (s *Server) updateSession(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	body, err := readBody(c)
	if err != nil {
		return nil, err
	}
	var requested settings
	if err := api.DecodePatch(body, &requested); err != nil {
		return nil, err
	}
	if requested == (settings{}) {
		return nil, api.Invalid("", "the body must have at least one of metadata, instructions, contextConfig and modelConfig")
	}
	if err := s.check(&requested); err != nil {
		return nil, err
	}
	updated, err := s.Conversation.Store.UpdateSession(c.Request.Context(), api.Owner(principal(c)), id, s.change(&requested))
	if err != nil {
		return nil, err
	}
	return wholeSession(updated), nil
}

// deleteSession is DELETE /v1/sessions/{sessionId}.
func (s *Server) deleteSession(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	if err := s.Conversation.DeleteSession(c.Request.Context(), api.Owner(principal(c)), id); err != nil {
		return nil, err
	}
	return gin.H{"deleted": true, "sessionId": id}, nil
}

// page is one page of a list of sessions, messages or keys.
type page struct {
	Data       any        `json:"data"`
	Pagination pagination `json:"pagination"`
	Stream     *resume    `json:"stream,omitempty"`
}

// pagination holds the cursor of the next page; nil on the last page.
type pagination struct {
	HasMore    bool    `json:"hasMore"`
	NextCursor *string `json:"nextCursor"`
}

func paginate(more bool, last string) pagination {
	if !more {
		return pagination{}
	}
	return pagination{HasMore: true, NextCursor: &last}
}

// listSessions is GET /v1/sessions, newest first.
func (s *Server) listSessions(c *gin.Context) (any, error) {
	limit, err := queryLimit(c, defaultSessions, maxSessions)
	if err != nil {
		return nil, err
	}
	before, err := queryID(c, "cursor", conversation.SessionPrefix)
	if err != nil {
		return nil, err
	}
	user, err := queryID(c, "userId", conversation.UserPrefix)
	if err != nil {
		return nil, err
	}
	found, err := s.Conversation.Store.Sessions(c.Request.Context(), api.Owner(principal(c)), conversation.SessionQuery{
		UserID: user, Before: before, Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	data := make([]session, len(found.Sessions))
	last := ""
	for i, f := range found.Sessions {
		data[i], last = sessionShape(f), f.ID
	}
	return page{Data: data, Pagination: paginate(found.More, last)}, nil
}
