package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"parley/stream/client"
)

func Example() {
	service := startScripted(hello) // the example uses this in place of `parley serve`
	defer service.Close()

	c := client.New(client.Options{BaseURL: service.URL + "/v1", Key: "svc_live_…"})
	defer c.Close()
	ctx := context.Background()

	var session struct{ SessionID string }
	if err := c.Do(ctx, "POST", "/sessions", map[string]any{"userId": "user_0123456789abcdef"}, &session); err != nil {
		log.Fatal(err)
	}
	for event, err := range c.Send(ctx, session.SessionID, client.NewMessage{Content: "Hi"}) {
		if refused, ok := errors.AsType[*client.Error](err); ok && refused.Code == "rate_limit_exceeded" {
			log.Fatalf("come back in %v", refused.RetryAfter)
		}
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case client.Delta:
			fmt.Print(event.Delta)
		case client.End:
			fmt.Printf("\n%s, %d tokens\n", event.Message.Status, event.Message.Tokens)
		}
	}
	// Output:
	// Hello, you.
	// completed, 4 tokens
}
