package conversation

// Mode separates production data from the data of development keys.
type Mode string

// The modes, as in the prefixes of keys.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Owner owns data: an account in a mode. Every call to the store names one, so another owner's data cannot be reached.
type Owner struct {
	Account string
	Mode    Mode
}
