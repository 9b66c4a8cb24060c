package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
)

// Do makes a REST request with the client's key. path is relative to BaseURL. Do encodes body as JSON, unless body is nil.
// It decodes the response into answer, unless answer is nil. If the status is not 200, Do returns an [Error]. If the server
// cannot be reached, Do returns an [Error] with the code connection_lost. Do does not retry, because the server may have
// carried out the request.
//
//	err := c.Do(ctx, "POST", "/sessions", map[string]any{"userId": user, "instructions": "Be brief."}, &session)
//	err = c.Do(ctx, "PATCH", "/sessions/"+id, map[string]any{"modelConfig": map[string]any{"temperature": 0.2}}, &session)
func (c *Client) Do(ctx context.Context, method, path string, body, answer any) error {
	if c.key == "" {
		return errNoKey
	}
	if c.ctx.Err() != nil {
		return errClosed
	}
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return failure(ctx, &Error{Code: "connection_lost", Message: "the server cannot be reached", cause: err})
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxFrame))
	if err != nil {
		return failure(ctx, &Error{Code: "connection_lost", Message: "the server's response broke off", cause: err})
	}
	if response.StatusCode != http.StatusOK {
		return refusal(response.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return &Error{Code: "internal_error", Message: "the response is not from a Parley server", Status: response.StatusCode, cause: err}
	}
	return nil
}

func messagePath(sessionID, messageID string) string {
	return "/sessions/" + url.PathEscape(sessionID) + "/messages/" + url.PathEscape(messageID)
}
