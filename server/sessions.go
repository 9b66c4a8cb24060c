package server

import (
	"encoding/json"
	"fmt"

	"github.com/gin-gonic/gin"

	"parley/conversation"
	"parley/stream/wire"
)

// createSession is POST /v1/sessions (spec: Create Session).
func (s *Server) createSession(c *gin.Context) (any, error) {
	var body struct {
		UserID        *string         `json:"userId"`
		Metadata      json.RawMessage `json:"metadata"`
		ContextConfig *contextConfig  `json:"contextConfig"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	switch {
	case body.UserID == nil:
		return nil, invalid("userId", missing)
	case !conversation.ValidID(conversation.UserPrefix, *body.UserID):
		return nil, invalid("userId", "must be user_ and 16 characters of [0-9A-Za-z]")
	case !validMetadata(body.Metadata):
		return nil, invalid("metadata", wrongMetadata)
	}
	config, err := body.ContextConfig.check()
	if err != nil {
		return nil, err
	}
	asked := conversation.NewSession{UserID: *body.UserID, Metadata: body.Metadata, Context: config}
	if asked.Idempotency, err = idempotency(headerIdempotencyKey, headerKey(c), asked); err != nil {
		return nil, err
	}
	made, err := s.Conversation.Store.CreateSession(c.Request.Context(), owner(principal(c)), asked)
	if err != nil {
		return nil, err
	}
	session := made.Session
	if made.Replayed { // as it was then
		c.Header(headerReplayed, "true")
		session.MessageCount, session.TokenUsage = 0, conversation.TokenUsage{}
	}
	return created{
		SessionID: session.ID, UserID: session.UserID, CreatedAt: session.CreatedAt, ExpiresAt: session.ExpiresAt,
		MessageCount: session.MessageCount, TokenUsage: session.TokenUsage,
	}, nil
}

// contextConfig is the context window's configuration as it is asked for; what is left out has its default.
type contextConfig struct {
	MaxTokens          *int    `json:"maxTokens"`
	CompressionEnabled *bool   `json:"compressionEnabled"`
	RetentionPolicy    *string `json:"retentionPolicy"`
}

func (asked *contextConfig) check() (conversation.ContextConfig, error) {
	config := conversation.DefaultContextConfig
	if asked == nil {
		return config, nil
	}
	if asked.MaxTokens != nil {
		config.MaxTokens = *asked.MaxTokens
		if config.MaxTokens < minWindow || config.MaxTokens > maxWindow {
			return config, invalid("contextConfig.maxTokens", fmt.Sprintf("must be a whole number from %d to %d", minWindow, maxWindow))
		}
	}
	if asked.CompressionEnabled != nil {
		config.CompressionEnabled = *asked.CompressionEnabled
	}
	if asked.RetentionPolicy != nil {
		config.RetentionPolicy = conversation.RetentionPolicy(*asked.RetentionPolicy)
		switch config.RetentionPolicy {
		case conversation.FIFO, conversation.Priority, conversation.Semantic:
		default:
			return config, invalid("contextConfig.retentionPolicy", "must be fifo, priority or semantic")
		}
	}
	return config, nil
}

// created is a session as its creation answers it.
type created struct {
	SessionID    string                  `json:"sessionId"`
	UserID       string                  `json:"userId"`
	CreatedAt    conversation.Time       `json:"createdAt"`
	ExpiresAt    conversation.Time       `json:"expiresAt"`
	MessageCount int                     `json:"messageCount"`
	TokenUsage   conversation.TokenUsage `json:"tokenUsage"`
}

// session is a session as reading it answers it.
type session struct {
	SessionID    string                  `json:"sessionId"`
	UserID       string                  `json:"userId"`
	CreatedAt    conversation.Time       `json:"createdAt"`
	ExpiresAt    conversation.Time       `json:"expiresAt"`
	LastActivity conversation.Time       `json:"lastActivity"`
	MessageCount int                     `json:"messageCount"`
	TokenUsage   conversation.TokenUsage `json:"tokenUsage"`
	Metadata     json.RawMessage         `json:"metadata"`
	Stream       *resume                 `json:"stream,omitempty"`
}

// resume is the place from which a view goes on after what an answer shows.
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

// getSession is GET /v1/sessions/{sessionId} (spec: Get Session).
func (s *Server) getSession(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	found, position, err := s.Conversation.Session(c.Request.Context(), owner(principal(c)), id)
	if err != nil {
		return nil, err
	}
	shape := sessionShape(found)
	shape.Stream = &resume{Cursor: wire.Cursor(id, position)}
	return shape, nil
}

// deleteSession is DELETE /v1/sessions/{sessionId} (spec: Delete Session).
func (s *Server) deleteSession(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	if err := s.Conversation.DeleteSession(c.Request.Context(), owner(principal(c)), id); err != nil {
		return nil, err
	}
	return gin.H{"deleted": true, "sessionId": id}, nil
}

// page is a page of a list.
type page struct {
	Data       any        `json:"data"`
	Pagination pagination `json:"pagination"`
	Stream     *resume    `json:"stream,omitempty"`
}

// pagination says whether more items exist, and the cursor of the next page if they do.
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

// listSessions is GET /v1/sessions (spec: list sessions): newest first.
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
	found, err := s.Conversation.Store.Sessions(c.Request.Context(), owner(principal(c)), conversation.SessionQuery{
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
