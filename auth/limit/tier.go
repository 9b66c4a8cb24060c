package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Tier is the subscription of an account; it decides its limits.
type Tier string

// The tiers.
const (
	Free       Tier = "free"
	Pro        Tier = "pro"
	Enterprise Tier = "enterprise"
)

const tierNames = "free, pro, enterprise"

// ParseTier returns the tier with that name. The error for any other name lists the tiers.
func ParseTier(name string) (Tier, error) {
	if new(Tiers).limits(Tier(name)) == nil {
		return "", fmt.Errorf("unknown tier %q (%s)", name, tierNames)
	}
	return Tier(name), nil
}

// TierLimits are the rate limits and quotas of a tier.
type TierLimits struct {
	RequestsPerMinute int // 1 to MaxLimit
	TokensPerMinute   int // 1 to MaxLimit

	// These are for the usage report of a calendar month (UTC). They are not enforced: the operator decides what happens
	// to a customer who exceeds them.
	RequestsPerMonth int64
	TokensPerMonth   int64
	ActiveSessions   int64 // at the same time
}

// maxReported bounds the monthly figures. It is below 2^53, so JavaScript represents them exactly.
const maxReported = 1_000_000_000_000_000

// Tiers holds the limits of each tier.
type Tiers struct{ free, pro, enterprise TierLimits }

// DefaultTiers returns the published limits of each tier. The monthly figures (requests, tokens, active sessions) are
// Parley's own choice.
func DefaultTiers() Tiers {
	return Tiers{
		free:       TierLimits{60, 10_000, 10_000, 1_000_000, 100},
		pro:        TierLimits{300, 100_000, 500_000, 50_000_000, 5_000},
		enterprise: TierLimits{1_000, 500_000, 5_000_000, 1_000_000_000, 50_000},
	}
}

// Limits returns the limits of a tier; ok is false for an unknown tier.
func (t *Tiers) Limits(tier Tier) (limits TierLimits, ok bool) {
	if f := t.limits(tier); f != nil {
		return *f, true
	}
	return TierLimits{}, false
}

func (t *Tiers) limits(tier Tier) *TierLimits {
	switch tier {
	case Free:
		return &t.free
	case Pro:
		return &t.pro
	case Enterprise:
		return &t.enterprise
	}
	return nil
}

// ParseTiers returns the default tiers with the overrides of PARLEY_TIERS. That is a JSON object of tiers, each an object
// with any of requestsPerMinute, tokensPerMinute, requestsPerMonth, tokensPerMonth and activeSessions. Empty text
// overrides nothing. Values must be whole numbers from 1. An unknown or repeated name is an error, because a typing error
// would otherwise leave the default limit in force. Errors name the field.
func ParseTiers(overrides string) (Tiers, error) {
	tiers := DefaultTiers()
	if strings.TrimSpace(overrides) == "" {
		return tiers, nil
	}
	d := json.NewDecoder(strings.NewReader(overrides))
	d.UseNumber()
	err := eachField(d, "the value", func(name string) error {
		limits := tiers.limits(Tier(name))
		if limits == nil {
			return fmt.Errorf("unknown tier %q (%s)", name, tierNames)
		}
		return eachField(d, name, func(field string) error {
			return limits.override(d, name, field)
		})
	})
	if err != nil {
		return Tiers{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Tiers{}, errors.New("unexpected text after the JSON object")
	}
	return tiers, nil
}

// override decodes the value of one field into l.
func (l *TierLimits) override(d *json.Decoder, tier, field string) error {
	var minute *int
	var reported *int64
	switch field {
	case "requestsPerMinute":
		minute = &l.RequestsPerMinute
	case "tokensPerMinute":
		minute = &l.TokensPerMinute
	case "requestsPerMonth":
		reported = &l.RequestsPerMonth
	case "tokensPerMonth":
		reported = &l.TokensPerMonth
	case "activeSessions":
		reported = &l.ActiveSessions
	default:
		return fmt.Errorf("unknown field %q of %s (requestsPerMinute, tokensPerMinute, "+
			"requestsPerMonth, tokensPerMonth, activeSessions)", field, tier)
	}
	if minute != nil {
		n, err := readNumber(d, tier+"."+field, MaxLimit)
		*minute = int(n)
		return err
	}
	n, err := readNumber(d, tier+"."+field, maxReported)
	*reported = n
	return err
}

// readNumber decodes a whole number from 1 to most.
func readNumber(d *json.Decoder, name string, most int64) (int64, error) {
	token, err := d.Token()
	if err != nil {
		return 0, malformed(err)
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s must be a number", name)
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is %s: use a whole number from 1 to %d", name, number, most)
	}
	return n, nil
}

// eachField decodes an object. It calls read with the name of each field, to decode the value.
func eachField(d *json.Decoder, name string, read func(field string) error) error {
	token, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	if token != json.Delim('{') {
		return fmt.Errorf("%s must be an object", name)
	}
	var seen []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		field, _ := token.(string) // the decoder allows only strings here
		if slices.Contains(seen, field) {
			return fmt.Errorf("%s contains %q twice", name, field)
		}
		seen = append(seen, field)
		if err := read(field); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

func malformed(err error) error { return fmt.Errorf("malformed JSON: %w", err) }
