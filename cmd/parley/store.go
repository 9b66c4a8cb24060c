package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"parley/store"
	"parley/store/embedded"
)

// storeCommands is `parley store`.
type storeCommands struct {
	Check storeCheck `cmd:"" help:"Check the file of a stopped embedded store for damage. Changes nothing."`
}

// storeCheck is `parley store check`.
type storeCheck struct {
	File string `arg:"" help:"File of the store, for example parley.db."`
}

// Help is the text that kong prints below the summary of the command.
func (storeCheck) Help() string {
	return `Reads all pages of the file and verifies the checksum of each record. Prints the buckets with their records and bytes, and each
damage with its page and the ids of the sessions and messages, but no texts and no secrets. The exit code is 0 if the file is
whole, and 1 if it is damaged, cannot be read, or is in use: stop the server first.`
}

// Run checks a file.
func (c *storeCheck) Run(o output) error {
	path := strings.TrimPrefix(c.File, "file:")
	report, err := embedded.Check(path, func(pages, all uint64) {
		fmt.Fprintf(o.errs, "checked %d of up to %d pages\n", pages, all)
	})
	if errors.Is(err, store.ErrInUse) {
		return fmt.Errorf("%w: stop the server first", err)
	}
	if err != nil {
		return err
	}
	if err := writeReport(o.out, &report); err != nil {
		return err
	}
	switch n := len(report.Damages) + report.More; n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("the store %s is damaged in at least 1 place: restore a backup", path)
	default:
		return fmt.Errorf("the store %s is damaged in at least %d places: restore a backup", path, n)
	}
}

func writeReport(out io.Writer, r *embedded.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "bucket\trecords\tbytes\t")
	for _, b := range r.Buckets {
		fmt.Fprintf(w, "%s\t%d\t%d\t\n", b.Name, b.Records, b.Bytes)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "pages: %d of %d bytes, %d of them free\n", r.Pages, r.PageSize, r.Free)
	fmt.Fprintf(out, "journal: %d entries\n", r.Journal.Entries)
	if j := r.Journal; j.Unreadable > 0 {
		fmt.Fprintf(out, "journal: %d of %d bytes cannot be read; live replies may lack the end of their text\n", j.Unreadable, j.Bytes)
	}
	for _, d := range r.Damages {
		fmt.Fprintln(out, "damage:", d.Place())
	}
	if r.More > 0 {
		fmt.Fprintf(out, "damage: %d more\n", r.More)
	}
	if len(r.Damages) > 0 {
		return nil
	}
	_, err := fmt.Fprintln(out, "no damage")
	return err
}
