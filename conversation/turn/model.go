package turn

import (
	"context"
	"strconv"

	"parley/conversation"
	"parley/stream"
	"parley/stream/models"
)

// modelOf returns the model that a session names. A server that was started again with other models may lack it. Then each reply
// of the session fails until the session names another model: a reply by another model could cost more, or see texts that it must
// not see.
func modelOf(set *models.Set, session *conversation.Session) stream.Model {
	if model, ok := set.Lookup(session.Model.Model); ok {
		return model
	}
	return missing{session.Model.Model}
}

// missing stands for a model that is not configured. Each reply fails.
type missing struct{ name string }

func (m missing) Name() string { return m.name }

func (m missing) Generate(context.Context, stream.Request, func([]byte)) (stream.Result, error) {
	return stream.Result{}, &stream.ModelError{
		Code:    stream.CodeProviderError,
		Message: "the session's model " + strconv.Quote(m.name) + " is not configured: change modelConfig.model of the session",
	}
}
