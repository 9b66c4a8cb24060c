package embedded

import (
	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
)

// months holds, for each owner, the tokens of this calendar month (UTC) up to the beginning of hour. Tokens count in the hour
// in which they are stored, so these sums do not change within the hour. Only owners whose tier enforces tokensPerMonth, and
// who have sent in this hour, have a sum. The committer owns months.
type months struct {
	hour   usage.Hour
	tokens map[conversation.Owner]int64
}

// checkMonth returns an *auth.QuotaError if the tier enforces tokensPerMonth and the owner has used up these tokens.
func (w *writing) checkMonth(owner conversation.Owner, a *auth.Admission) error {
	if a == nil || a.Limits.EnforcedTokens() == 0 {
		return nil
	}
	used, err := w.monthTokens(owner)
	if most := a.Limits.EnforcedTokens(); err == nil && used >= most {
		return &auth.QuotaError{Quota: limit.QuotaTokensPerMonth, Used: used, Limit: most}
	}
	return err
}

// monthTokens returns the tokens that count for an owner in this month. It reads the counts of this hour. The first call of an
// hour also reads the counts of the earlier hours of the month.
func (w *writing) monthTokens(owner conversation.Owner) (int64, error) {
	now, m := momentHour(w.now), &w.store.months
	if m.hour != now {
		*m = months{hour: now, tokens: make(map[conversation.Owner]int64)}
	}
	sum, known := m.tokens[owner]
	if !known {
		from, _ := usage.Month(now)
		hours, err := w.usage(owner, from, now)
		if err != nil {
			return 0, err
		}
		for i := range hours {
			sum += hours[i].Bucket.PromptTokens + hours[i].Bucket.CompletionTokens
		}
		m.tokens[owner] = sum
	}
	var this usage.Bucket
	if place, found := w.tally.places[hourAt{owner, now}]; found { // an operation of the same transaction has counted
		this = w.tally.buckets[place]
	} else if err := readUsage(w.bucket(usageBucket).Get(usageKey(hourAt{owner, now})), &this); err != nil {
		return 0, err
	}
	return sum + this.PromptTokens + this.CompletionTokens, nil
}
