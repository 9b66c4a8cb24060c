// Package child starts processes that do not outlive this one.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command, and calls ended after the command's process has ended. If this process dies, the kernel kills the
// command (Pdeathsig). The kernel does so when the thread that started the command ends, so that thread is locked and waits
// for the command.
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
