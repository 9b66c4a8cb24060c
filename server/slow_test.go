package server_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestBody_NeverArrives_ClosedAfter30Seconds(t *testing.T) {
	for name, key := range map[string]string{"with_valid_key": adminKey, "with_invalid_key": "wrong"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startPiped(t, echo)
				conn, err := p.dialNet(context.Background(), "tcp", "parley")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				began := time.Now()
				if _, err := io.WriteString(conn, "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+key+
					"\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n{\"us"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(conn); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < 29*time.Second || took > 40*time.Second {
					t.Errorf("the connection was closed after %v", took)
				}
			})
		})
	}
}

func TestSend_ReplyTakes150Seconds_GetsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		answered := p.later("POST", messages(p.session()), content("hello"))
		c := model.next(t)
		for range 10 {
			c.say("word ")
			time.Sleep(15 * time.Second) // on the bubble's clock
		}
		c.end()
		if a := <-answered; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
}
