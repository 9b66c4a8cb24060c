package window

import (
	"embed"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"parley/conversation/tokens"
)

// The conversations were written for this benchmark. Each has 40 exchanges of small talk, and 20 exchanges in which the
// user states a fact, in [brackets]. For each fact there is a question that people might ask months later. The files in
// de/ are German, the other files are English.
//
//go:embed testdata/recall
var recorded embed.FS

// recordedExchange is an exchange of a recorded conversation.
type recordedExchange struct {
	userText, replyText string
	fact, question      string // "" if the exchange states no fact
	// computed from the texts
	messages        [2]Message
	questionMessage Message
	terms           Terms
	// set only with an embedding model
	vector, questionVector Vector
}

// conversations returns the names of the recorded conversations that match a pattern, in order, and the conversations
// by name.
func conversations(t *testing.T, pattern string) (names []string, all map[string][]recordedExchange) {
	names, err := fs.Glob(recorded, pattern)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	all = make(map[string][]recordedExchange)
	for i, name := range names {
		text, err := recorded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		names[i] = strings.TrimSuffix(path.Base(name), ".txt")
		for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:] {
			all[names[i]] = append(all[names[i]], parseExchange(t, block))
		}
	}
	return names, all
}

func parseExchange(t *testing.T, block string) (x recordedExchange) {
	for line := range strings.Lines(block) {
		kind, text := line[:2], strings.TrimSpace(line[2:])
		switch kind {
		case "> ":
			if _, after, ok := strings.Cut(text, "["); ok {
				x.fact, _, _ = strings.Cut(after, "]")
			}
			x.userText = strings.NewReplacer("[", "", "]", "").Replace(text)
		case "< ":
			x.replyText = text
		case "? ":
			x.question = text
		default:
			t.Fatalf("%q begins with neither > nor < nor ?", line)
		}
	}
	if x.userText == "" || x.replyText == "" || (x.fact == "") != (x.question == "") {
		t.Fatalf("an exchange lacks its message, its reply, its fact or its question: %q", block)
	}
	x.messages = [2]Message{{Tokens: counter.Count(x.userText) + MessageOverhead}, {Tokens: counter.Count(x.replyText) + MessageOverhead, Answers: true}}
	x.questionMessage = Message{ID: "new", Tokens: counter.Count(x.question) + MessageOverhead}
	x.terms = TermsOf(x.userText, x.replyText)
	return x
}

const english, german = "testdata/recall/*.txt", "testdata/recall/de/*.txt"

// The test checks the texts of the recall benchmark. Each conversation has 60 exchanges with 20 facts. A third to a
// half of the content words of a question, without their endings, must occur in the fact.
func TestRecall_Data_QuestionsShareFewWords(t *testing.T) {
	for _, lot := range []struct{ pattern, functionWords string }{{english, functionWords}, {german, funktionswoerter}} {
		functionTerms := make(map[uint32]bool)
		for _, term := range TermsOf(lot.functionWords) {
			functionTerms[term.Hash] = true
		}
		names, all := conversations(t, lot.pattern)
		for _, name := range names {
			facts, shared, words := 0, 0, 0
			for _, x := range all[name] {
				if x.question == "" {
					continue
				}
				asked := content(x.question, functionTerms)
				both := 0
				for _, term := range content(x.fact, functionTerms) {
					if slices.ContainsFunc(asked, func(q Term) bool { return q.Hash == term.Hash }) {
						both++
					}
				}
				if 3*both < len(asked) || 2*both > len(asked) {
					t.Errorf("%s: %d of %d content words occur in the fact: %s", name, both, len(asked), x.question)
				}
				facts, shared, words = facts+1, shared+both, words+len(asked)
			}
			if facts != 20 || len(all[name]) != 60 {
				t.Errorf("%s: %d facts in %d exchanges", name, facts, len(all[name]))
			}
			t.Logf("%s: questions share %d %% of their content words with the fact", name, 100*shared/max(words, 1))
		}
	}
}

func content(text string, functionTerms map[uint32]bool) Terms {
	return slices.DeleteFunc(TermsOf(text), func(t Term) bool { return functionTerms[t.Hash] })
}

const functionWords = `a about after again all also am an and any are as at away be because been before being below beside but by can cannot
	could did do does doing done down else ever everybody everything for from get gets given go had has have having he her
	here him his how i if in into is isn it its just ll long many may me might mine more most much must my neither never no
	nobody not nothing now of off on once one only or other others our ours out over s she should so some somebody
	something still such t than that the their them then there these they thing things this those though to too until up us
	ve very was we were what when where whether which while who whom whose why will with without would yet you your remind
	mean say said both each every during according`

const funktionswoerter = `aber alle allem allen als also am an auch auf aus bei bis da damit dann darf das dass dem den denn der des dessen die
	dies diese dieser doch dort du durch ein eine einem einen einer eines er es etwas falls für hat haben habe hatte hier
	ich ihm ihn ihnen ihr im in ist ja kann kein keine man mein meine mich mir mit muss nach nicht nichts noch nur ob oder
	ohne sein seine sich sie sind so soll sollen über um und uns unser unsere unserem unseren unter vom von vor wann war
	waren warum was weil welche welchem welchen welcher welches wem wen wenn wer werden weshalb wie wieder wird wir wo
	woher wohin wollen will worauf wurde zu zum zur zwischen dran lebten einmal vorher hinten dürfen gut`

// column is a column of the benchmark's table: a policy with settings.
type column struct {
	name    string
	policy  Policy
	high    bool // the facts have priority high
	meaning bool // compares embeddings as well as words
}

// policies are the benchmark's columns.
var policies = []column{
	{"fifo", FirstInFirstOut, false, false}, {"priority", Priority, false, false}, {"priority, facts high", Priority, true, false},
	{"semantic (BM25)", Semantic, false, false},
}

// bm25 is the index of the column with the semantic policy by words alone.
const bm25 = 3

var fractions = []struct {
	name string
	of   int
}{{"a half", 2}, {"a quarter", 4}, {"a tenth", 10}}

// size selects the quantity that a run sets to a fraction of the history's tokens: the budget or the whole window.
type size struct {
	name            string
	budget, summary bool
}

var sizes = []size{
	{"what may be sent", true, false},
	{"the window, with the reply's room in it,", false, false},
	{"the window, with the reply's room and a summary of full size in it,", false, true},
}

// shuffles is the number of runs for each conversation. In each run, the facts are at other random places.
const shuffles = 10

// The test is the recall benchmark. It asks the question about each fact after the last exchange, and measures the
// share of facts that are in the prompt word for word. If the prompt may have a quarter of the history's tokens, the
// semantic policy must keep three quarters of the facts, even when it compares only words, without embeddings. If
// PARLEY_RECALL_BASE_URL is set, the table has a column for embeddings (embeddings_test.go).
func TestRecall_SemanticPolicy_KeepsThreeQuartersOfFacts(t *testing.T) {
	for _, lot := range []struct{ language, pattern string }{{"English", english}, {"German", german}} {
		names, all := conversations(t, lot.pattern)
		policies := withEmbeddings(t, all)
		for _, size := range sizes {
			var table strings.Builder
			fmt.Fprintf(&table, "%s; %s is a fraction of the history's tokens\n%-22s", lot.language, size.name, "")
			for _, p := range policies {
				fmt.Fprintf(&table, "%22s", p.name)
			}
			for _, fraction := range fractions {
				total := make([]float64, len(policies))
				for _, name := range names {
					shares := recall(policies, all[name], fraction.of, size)
					row(&table, name, fraction.name, shares)
					for i := range shares {
						total[i] += shares[i] / float64(len(names))
					}
				}
				row(&table, "ALL", fraction.name, total)
				if semantic := total[bm25]; fraction.of == 4 && semantic < 0.75 {
					t.Errorf("%s: the semantic policy keeps %.1f %% of the facts in a quarter of the tokens", lot.language, 100*semantic)
				}
			}
			t.Log(table.String())
		}
	}
}

func row(table *strings.Builder, name, fraction string, shares []float64) {
	fmt.Fprintf(table, "\n%-12s%-10s", name, fraction)
	for _, share := range shares {
		fmt.Fprintf(table, "%20.1f %%", 100*share)
	}
}

// recall returns the share of facts that each policy keeps. It sets the quantity that size selects to the number of the
// history's tokens, divided by fraction.
func recall(policies []column, exchanges []recordedExchange, fraction int, size size) []float64 {
	kept, asked := make([]int, len(policies)), 0
	for seed := range uint64(shuffles) {
		talk := shuffled(exchanges, seed)
		in, terms, vectors := inputOf(talk)
		tokens := newPlanner(in).tokens / fraction
		for in.MaxTokens = tokens; size.budget && in.Budget() < tokens; {
			in.MaxTokens++
		}
		if size.summary {
			in.Summary = Summary{Tokens: in.SummaryLimit(), Last: "0"} // the summary covers no message of the history
		}
		for i, x := range talk {
			if x.question == "" {
				continue
			}
			asked++
			in.New = x.questionMessage
			words := LexicalScores(TermsOf(x.question), terms)
			for p, policy := range policies {
				scores := words
				if policy.meaning {
					scores = FuseScores(words, x.questionVector, vectors)
				}
				for e := range talk {
					in.History[2*e].Similarity, in.History[2*e].Priority = scores[e], Normal
					if policy.high && talk[e].fact != "" {
						in.History[2*e].Priority = High
					}
				}
				in.Policy = policy.policy
				if Plan(in).Decisions[2*i].Verdict == Kept {
					kept[p]++
				}
			}
		}
	}
	shares := make([]float64, len(policies))
	for i, n := range kept {
		shares[i] = float64(n) / float64(asked)
	}
	return shares
}

var counter = tokens.For("gpt-4o")

// shuffled returns the conversation with its facts at random places. The small talk keeps its order.
func shuffled(exchanges []recordedExchange, seed uint64) []recordedExchange {
	random := rand.New(rand.NewPCG(seed, 60))
	var facts, talk []recordedExchange
	for _, x := range exchanges {
		if x.question != "" {
			facts = append(facts, x)
		} else {
			talk = append(talk, x)
		}
	}
	random.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
	places := random.Perm(len(exchanges))[:len(facts)]
	all := make([]recordedExchange, len(exchanges))
	for i, place := range places {
		all[place] = facts[i]
	}
	for i := range all {
		if all[i].userText == "" {
			all[i], talk = talk[0], talk[1:]
		}
	}
	return all
}

func inputOf(talk []recordedExchange) (in Input, terms []Terms, vectors []Vector) {
	in.Compression = true
	for _, x := range talk {
		for _, m := range x.messages {
			m.ID = fmt.Sprintf("%03d", len(in.History))
			in.History = append(in.History, m)
		}
		terms, vectors = append(terms, x.terms), append(vectors, x.vector)
	}
	return in, terms, vectors
}
