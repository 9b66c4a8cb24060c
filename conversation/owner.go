package conversation

// Mode separates production data from data that was created with test keys.
type Mode string

// The modes. The prefix of an API key contains its mode.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Owner is an account in a mode. It owns sessions, messages and usage. A store call for a session, a message or usage
// names the owner. So one owner cannot reach the data of another owner.
type Owner struct {
	Account string
	Mode    Mode
}
