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

// Tier is what an account subscribes to.
type Tier string

// The tiers.
const (
	Free       Tier = "free"
	Pro        Tier = "pro"
	Enterprise Tier = "enterprise"
)

const tierNames = "free, pro and enterprise"

// ParseTier returns the tier of that name.
func ParseTier(name string) (Tier, error) {
	if new(Tiers).figures(Tier(name)) == nil {
		return "", fmt.Errorf("there is no tier %q; there are %s", name, tierNames)
	}
	return Tier(name), nil
}

// Figures are the limits of a tier.
type TierLimits struct {
	RequestsPerMinute int // 1 to MaxLimit
	TokensPerMinute   int // 1 to MaxLimit

	// Those of the usage report (spec: Limits, 3), for a calendar month, UTC. They are reported, not enforced.
	RequestsPerMonth int64
	TokensPerMonth   int64
	ActiveSessions   int64 // at a time
}

// maxReported bounds the figures of the usage report: whole numbers that JavaScript holds exactly.
const maxReported = 1_000_000_000_000_000

// Tiers are the figures of all tiers.
type Tiers struct{ free, pro, enterprise TierLimits }

// DefaultTiers are those of the spec (Limits). It gives no monthly figures; ours are, in requests, tokens and active
// sessions: free 10,000, 1,000,000 and 100; pro 500,000, 50,000,000 and 5,000; enterprise 5,000,000, 1,000,000,000
// and 50,000.
func DefaultTiers() Tiers {
	return Tiers{
		free:       TierLimits{60, 10_000, 10_000, 1_000_000, 100},
		pro:        TierLimits{300, 100_000, 500_000, 50_000_000, 5_000},
		enterprise: TierLimits{1_000, 500_000, 5_000_000, 1_000_000_000, 50_000},
	}
}

// Figures are those of a tier; ok is false if there is no such tier.
func (t *Tiers) Limits(tier Tier) (figures TierLimits, ok bool) {
	if f := t.figures(tier); f != nil {
		return *f, true
	}
	return TierLimits{}, false
}

func (t *Tiers) figures(tier Tier) *TierLimits {
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

// ParseTiers returns the default tiers with the figures that overrides (PARLEY_TIERS, design section 8) sets: an
// object of tiers, each an object with any of requestsPerMinute, tokensPerMinute, requestsPerMonth, tokensPerMonth
// and activeSessions. No text is no override. It is strict: names are spelt so and stand once, figures are whole
// numbers from 1; the error names what is not.
func ParseTiers(overrides string) (Tiers, error) {
	tiers := DefaultTiers()
	if strings.TrimSpace(overrides) == "" {
		return tiers, nil
	}
	d := json.NewDecoder(strings.NewReader(overrides))
	d.UseNumber()
	err := eachField(d, "the value", func(name string) error {
		figures := tiers.figures(Tier(name))
		if figures == nil {
			return fmt.Errorf("there is no tier %q; there are %s", name, tierNames)
		}
		return eachField(d, name, func(field string) error {
			return figures.override(d, name, field)
		})
	})
	if err != nil {
		return Tiers{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Tiers{}, errors.New("something follows the object")
	}
	return tiers, nil
}

// override reads the figure of a field.
func (f *TierLimits) override(d *json.Decoder, tier, field string) error {
	var minute *int
	var reported *int64
	switch field {
	case "requestsPerMinute":
		minute = &f.RequestsPerMinute
	case "tokensPerMinute":
		minute = &f.TokensPerMinute
	case "requestsPerMonth":
		reported = &f.RequestsPerMonth
	case "tokensPerMonth":
		reported = &f.TokensPerMonth
	case "activeSessions":
		reported = &f.ActiveSessions
	default:
		return fmt.Errorf("%s has no figure %q; there are requestsPerMinute, tokensPerMinute, "+
			"requestsPerMonth, tokensPerMonth and activeSessions", tier, field)
	}
	if minute != nil {
		n, err := readFigure(d, tier+"."+field, MaxLimit)
		*minute = int(n)
		return err
	}
	n, err := readFigure(d, tier+"."+field, maxReported)
	*reported = n
	return err
}

// readFigure reads a whole number from 1 to most.
func readFigure(d *json.Decoder, name string, most int64) (int64, error) {
	token, err := d.Token()
	if err != nil {
		return 0, malformed(err)
	}
	number, ok := token.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%s is not a number", name)
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is %s, not a whole number from 1 to %d", name, number, most)
	}
	return n, nil
}

// eachField reads an object; read reads the value of a field.
func eachField(d *json.Decoder, name string, read func(field string) error) error {
	token, err := d.Token()
	if err != nil {
		return malformed(err)
	}
	if token != json.Delim('{') {
		return fmt.Errorf("%s is not an object", name)
	}
	var seen []string
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		field, _ := token.(string) // nothing else can be a field's name
		if slices.Contains(seen, field) {
			return fmt.Errorf("%s has %q twice", name, field)
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
