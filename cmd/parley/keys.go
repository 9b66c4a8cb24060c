package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/store"
)

// keys is `parley keys`. It manages keys like the API, but directly in the store, without a key or a server. Unlike the API, it
// can choose the account, the tier of the account, and the mode.
type keys struct {
	Create keysCreate `cmd:"" help:"Create a key. Its secret, shown only once, is alone on standard output; its record is on standard error."`
	List   keysList   `cmd:"" help:"List the keys of an account and mode, newest first."`
	Revoke keysRevoke `cmd:"" help:"Revoke a key: its secrets stop working at once."`
	Rotate keysRotate `cmd:"" help:"Give a key a new secret, printed alone on standard output. The old secret works for 24 more hours."`
}

// Help is the text that kong prints below the summary of the command.
func (keys) Help() string {
	return `These commands work on the store itself and need neither a key nor a server. Only one process can open the embedded store:
stop the server first, or use its API (for example POST /v1/keys). An account is created on first use.`
}

// keysStore has the flags that select a store, and an account and a mode in that store.
type keysStore struct {
	Store   string `env:"PARLEY_STORE" default:"file:parley.db" help:"Store of the keys: file:PATH or redis://HOST:PORT and so on, as for serve. Only create creates a missing file."`
	Account string `default:"default" help:"Account of the key: 1 to 64 characters of [0-9A-Za-z._-]."`
	Mode    string `enum:"live,test" default:"live" help:"Mode of the key: live or test. Neither sees the other's data."`
}

// open opens the store and calls do with its keys. If mayCreate is false, the store must exist.
func (c *keysStore) open(ctx context.Context, mayCreate bool, do func(*auth.Keys, auth.Owner) error) (err error) {
	if err := auth.CheckAccount(c.Account); err != nil {
		return fmt.Errorf("--account %w", err)
	}
	if err := store.Exists(c.Store); err != nil && !mayCreate {
		return fmt.Errorf("--store (PARLEY_STORE): %w", err)
	}
	backend, err := store.Open(ctx, c.Store, slog.New(slog.DiscardHandler))
	if errors.Is(err, store.ErrInUse) {
		return fmt.Errorf("--store (PARLEY_STORE): %w: stop the server, or use its API (POST /v1/keys)", err)
	}
	if err != nil {
		return fmt.Errorf("--store (PARLEY_STORE): %w", err)
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	return do(auth.NewKeys(backend.Keys, auth.Options{}), auth.Owner{Account: c.Account, Mode: c.Mode})
}

// keysCreate is `parley keys create`.
type keysCreate struct {
	keysStore
	Name    string   `required:"" placeholder:"NAME" help:"Name of the key, for your own use: 1 to 100 characters."`
	Scopes  []string `required:"" placeholder:"SCOPE" help:"What the key may do, separated by commas: read:sessions, write:sessions, read:messages, write:messages, read:analytics, admin (all)."`
	Expires string   `placeholder:"TIME" help:"When the key expires, in ISO 8601 with a time zone, for example 2031-01-01T00:00:00Z. Default: never."`
	Tier    string   `placeholder:"TIER" help:"New tier of the account: free, pro or enterprise. Default: unchanged; a new account is free. The tier of the account default is set by PARLEY_TIER of the server."`
}

// Run creates a key.
func (c *keysCreate) Run(ctx context.Context, o output) error {
	wanted, tier, err := c.check()
	if err != nil {
		return err
	}
	return c.open(ctx, true, func(keys *auth.Keys, owner auth.Owner) error {
		key, secret, err := keys.CreateFor(ctx, owner, wanted, tier)
		if err != nil {
			return err
		}
		return show(o, key, secret)
	})
}

// check validates the flags. It returns the properties of the new key, and the new tier of its account ("" to keep the tier).
func (c *keysCreate) check() (wanted auth.NewKey, tier limit.Tier, err error) {
	wanted.Name = c.Name
	if err := auth.CheckName(c.Name); err != nil {
		return wanted, "", fmt.Errorf("--name %w", err)
	}
	if wanted.Scopes, err = auth.ParseScopes(c.Scopes); err != nil {
		return wanted, "", fmt.Errorf("--scopes %w", err)
	}
	if c.Expires != "" {
		if wanted.ExpiresAt, err = auth.ParseExpiry(c.Expires, time.Now()); err != nil {
			return wanted, "", fmt.Errorf("--expires %w", err)
		}
	}
	if c.Tier == "" {
		return wanted, "", nil
	}
	if c.Account == auth.DefaultAccount {
		return wanted, "", errors.New("--tier cannot change the account default: set PARLEY_TIER of the server instead")
	}
	if tier, err = limit.ParseTier(c.Tier); err != nil {
		return wanted, "", fmt.Errorf("--tier: %w", err)
	}
	return wanted, tier, nil
}

// show prints a secret alone on standard output, and the record of its key on standard error.
func show(o output, key auth.Key, secret string) error {
	if err := writeRecord(o, key); err != nil {
		return err
	}
	_, err := fmt.Fprintln(o.out, secret)
	return err
}

func writeRecord(o output, key auth.Key) error {
	encoder := json.NewEncoder(o.errs)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(key.Record(time.Now()))
}

// keysList is `parley keys list`.
type keysList struct {
	keysStore
	JSON bool `name:"json" help:"Print the records as JSON, in the format of the API."`
}

// Run lists keys.
func (c *keysList) Run(ctx context.Context, o output) error {
	return c.open(ctx, false, func(keys *auth.Keys, owner auth.Owner) error {
		records, err := allRecords(ctx, keys, owner)
		if err != nil {
			return err
		}
		if c.JSON {
			encoder := json.NewEncoder(o.out)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(map[string]any{"data": records})
		}
		return table(o, records)
	})
}

// allRecords returns the records of all keys of an owner, newest first. It reads the keys in pages.
func allRecords(ctx context.Context, keys *auth.Keys, owner auth.Owner) ([]auth.Record, error) {
	records := []auth.Record{}
	query := auth.KeyQuery{Limit: 100}
	for {
		page, err := keys.List(ctx, owner, query)
		if err != nil {
			return nil, err
		}
		for i := range page.Keys {
			records = append(records, page.Keys[i].Record(time.Now()))
		}
		if query.Before = page.Next; page.Next.IsZero() {
			return records, nil
		}
	}
}

// table prints records as a table.
func table(o output, records []auth.Record) error {
	w := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY ID\tSTATUS\tPREFIX\tSCOPES\tCREATED\tCREATED BY\tEXPIRES\tLAST USED\tNAME")
	for _, r := range records {
		scopes := make([]string, len(r.Scopes))
		for i, s := range r.Scopes {
			scopes[i] = string(s)
		}
		fmt.Fprintln(w, strings.Join([]string{
			r.KeyID, string(r.Status), r.Prefix, strings.Join(scopes, ","), r.CreatedAt, or(r.CreatedBy, "unknown"),
			or(r.ExpiresAt, "never"), or(r.LastUsedAt, "never"), r.Name,
		}, "\t"))
	}
	return w.Flush()
}

// or returns the text, or missing if text is nil.
func or(text *string, missing string) string {
	if text == nil {
		return missing
	}
	return *text
}

// keysRevoke is `parley keys revoke`.
type keysRevoke struct {
	keysStore
	KeyID string `arg:"" name:"key-id" help:"Id of the key, as list shows it."`
}

// Run revokes a key.
func (c *keysRevoke) Run(ctx context.Context, o output) error {
	return c.open(ctx, false, func(keys *auth.Keys, owner auth.Owner) error {
		if err := keys.RevokeFor(ctx, owner, c.KeyID); err != nil {
			return c.explain(c.KeyID, err)
		}
		_, err := fmt.Fprintln(o.errs, c.KeyID, "is revoked.")
		return err
	})
}

// keysRotate is `parley keys rotate`.
type keysRotate struct {
	keysStore
	KeyID string `arg:"" name:"key-id" help:"Id of the key, as list shows it."`
}

// Run rotates a key.
func (c *keysRotate) Run(ctx context.Context, o output) error {
	return c.open(ctx, false, func(keys *auth.Keys, owner auth.Owner) error {
		key, secret, err := keys.RotateFor(ctx, owner, c.KeyID)
		if err != nil {
			return c.explain(c.KeyID, err)
		}
		return show(o, key, secret)
	})
}

// explain replaces ErrKeyNotFound by an error that names the account and the mode that were searched. It does not repeat an
// argument that is not a key id, because the argument may be a secret.
func (c *keysStore) explain(id string, err error) error {
	switch {
	case !errors.Is(err, auth.ErrKeyNotFound):
		return err
	case !strings.HasPrefix(id, auth.KeyPrefix):
		return fmt.Errorf("invalid key id: it must begin with %s (parley keys list shows the ids)", auth.KeyPrefix)
	}
	return fmt.Errorf("account %q has no active %s key %s; use --account or --mode to choose another", c.Account, c.Mode, id)
}
