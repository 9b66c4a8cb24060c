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

// Tier is the subscription of an account. The limits of the account depend on the tier.
type Tier string

// The tiers.
const (
	Free       Tier = "free"
	Pro        Tier = "pro"
	Enterprise Tier = "enterprise"
)

const tierNames = "free, pro, enterprise"

// ParseTier returns the tier with that name. The error for an unknown name lists the tiers.
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

	// The usage report of a calendar month (UTC) contains these figures. Parley does not enforce them: the operator decides
	// what happens to a customer who exceeds them.
	RequestsPerMonth int64
	TokensPerMonth   int64
	ActiveSessions   int64 // sessions that are active at the same time
}

// maxReported is the maximum of the monthly figures. It is below 2^53, so that JavaScript can represent them exactly.
const maxReported = 1_000_000_000_000_000

// Tiers holds the limits of each tier.
type Tiers struct{ free, pro, enterprise TierLimits }

// DefaultTiers returns the default limits of each tier.
func DefaultTiers() Tiers {
	return Tiers{
		free:       TierLimits{60, 10_000, 10_000, 1_000_000, 100},
		pro:        TierLimits{300, 100_000, 500_000, 50_000_000, 5_000},
		enterprise: TierLimits{1_000, 500_000, 5_000_000, 1_000_000_000, 50_000},
	}
}

// Limits returns the limits of a tier. ok is false if the tier is unknown.
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

// ParseTiers returns the default tiers with the changes in overrides, the value of PARLEY_TIERS. overrides is a JSON object
// such as {"pro":{"requestsPerMinute":600}}. The other fields are tokensPerMinute, requestsPerMonth, tokensPerMonth and
// activeSessions. Values must be whole numbers of at least 1. An empty text changes nothing. An unknown or repeated name is
// an error: otherwise, nobody would notice a typing error. The error names the field.
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

// override decodes the next value of d, and sets the field of l that has the JSON name field.
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

// readNumber decodes the next value of d, which must be a whole number from 1 to most. The error contains name.
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

// eachField decodes the next value of d, which must be an object. For each field, it calls read with the name of the field.
// read must decode the value of the field. An error contains name.
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
