package models

import (
	"cmp"
	"slices"
	"sync"
)

const (
	// minEstimate is the smallest prompt that shows the ratio, in tokens of our estimate. A provider adds the same few tokens to
	// each prompt, for its chat template, and they would dominate the ratio of a smaller prompt.
	minEstimate = 64
	// maxWeight is the highest weight of one prompt. A prompt of 1,024 tokens shows the ratio within a few percent, so a larger one
	// must not outvote many others.
	maxWeight = 1024
	// minScale and maxScale bound the ratio. No tokenizer of a chat model needs half as many tokens as ours, which have up to
	// 200,000 words: a lower figure is that of a cut prompt (Ollama) or one without its cached part. A tokenizer
	// that knows only bytes needs 4 to 5 times as many tokens for English. A higher figure than 8 contains something else
	// than our prompt, for example a long system prompt of the provider.
	minScale, maxScale = 0.5, 8
	// accountWeight is the highest weight of the earlier prompts of an account. So its newest prompt changes the ratio of the account
	// by a ninth of the difference, and after a model was replaced, about 20 prompts show its ratio.
	accountWeight = 8 * maxWeight
	// remembered is the number of accounts that count. The account that has been silent for longest is forgotten first.
	remembered = 32
)

// scale is the running ratio of the provider's tokens to the tokens of our estimate.
//
// Each account has a ratio: the running mean of its prompts. The scale is the weighted median of the accounts: half of the weight is
// at or below it. An account counts at most as much as one large prompt, because it chooses its texts, and some texts have a ratio
// far from that of any conversation: long runs of spaces, for example. Such texts of one account must not shrink the prompts of all.
// The weight of a prompt is its size, because the fixed tokens of a chat template distort the ratio of a small prompt. Ratios outside
// the bounds are not ratios of tokenizers, and are ignored.
//
// The zero value has learned nothing. The methods may be called from any goroutine.
type scale struct {
	mu     sync.Mutex
	newest [remembered]sample // guarded by mu; the first count samples, one for each account; the first has been silent for longest
	count  int                // guarded by mu
	ratio  float64            // guarded by mu; 0 until the first sample
}

// sample is the ratio of an account.
type sample struct {
	account       string
	ratio, weight float64 // the mean of the prompts, and their weight, at most accountWeight
}

// observe learns from one prompt of an account: the estimated and the actual number of tokens.
func (s *scale) observe(account string, estimated, actual int) {
	if estimated < minEstimate || actual <= 0 {
		return
	}
	ratio := float64(actual) / float64(estimated)
	if ratio < minScale || ratio > maxScale {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(sample{account, ratio, float64(min(estimated, maxWeight))})
	s.ratio = median(s.newest, s.count)
}

// addLocked adds the newest sample to that of its account. If the account has none, and there is no room, it replaces the oldest one.
func (s *scale) addLocked(newest sample) {
	known := s.newest[:s.count]
	old := slices.IndexFunc(known, func(x sample) bool { return x.account == newest.account })
	if old < 0 && s.count < remembered {
		s.newest[s.count] = newest
		s.count++
		return
	}
	if old >= 0 {
		newest = known[old].with(newest)
	}
	old = max(old, 0)
	copy(known[old:], known[old+1:])
	known[s.count-1] = newest
}

// with returns the mean of a sample and a newer one of the same account.
func (x sample) with(newer sample) sample {
	weight := x.weight + newer.weight
	return sample{x.account, (x.ratio*x.weight + newer.ratio*newer.weight) / weight, min(weight, accountWeight)}
}

// median returns the smallest ratio of the first n samples for which the samples with at most this ratio have half of the weight.
func median(samples [remembered]sample, n int) float64 {
	sorted := samples[:n]
	slices.SortFunc(sorted, func(a, b sample) int { return cmp.Compare(a.ratio, b.ratio) })
	total, below := 0.0, 0.0
	for _, s := range sorted {
		total += min(s.weight, maxWeight)
	}
	for _, s := range sorted {
		if below += min(s.weight, maxWeight); below >= total/2 {
			return s.ratio
		}
	}
	return sorted[n-1].ratio
}

// get returns the ratio; 1 if nothing is learned.
func (s *scale) get() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ratio == 0 {
		return 1
	}
	return s.ratio
}
