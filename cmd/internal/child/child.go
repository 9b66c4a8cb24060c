// Package child starts processes that end with the process that started them.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command, and calls ended after the command has ended. If this process dies, the kernel kills the command
// (Pdeathsig). The kernel also kills the command when the thread that started it ends. So a locked thread starts the command and
// waits for its end.
func Start(cmd *exec.Cmd, ended func()) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the result is in cmd.ProcessState
			ended()
		}
	}()
	return <-started
}
