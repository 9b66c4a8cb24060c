package conversation

// Mode separates production data from the data of development keys.
type Mode string

// The modes. API keys carry them in their prefix.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Owner owns data: an account in a mode. Every call to the store for a session, a message or usage names the owner, so
// one owner cannot reach another's data.
type Owner struct {
	Account string
	Mode    Mode
}
