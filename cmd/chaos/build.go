package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// module returns the folder of the repository.
func module() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("run it in the repository: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}

// build builds the server in dir and returns the path of the binary. flags are further flags of go build.
func build(dir, name string, flags ...string) (string, error) {
	path := filepath.Join(dir, name)
	args := append(append([]string{"build", "-o", path}, flags...), "parley/cmd/parley")
	if output, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return path, nil
}
