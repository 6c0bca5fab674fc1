package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A task is one TASK and the process group that works on it.
type task struct {
	id, title, worker, request string
	priority, attempt          int
	timeout                    time.Duration
	speaks11                   bool     // by a TASK of version 1 nothing of 1.1 is agreed
	claims                     bool     // this worker claims and closes, through `bd`
	own                        []string // the issue's own command, in place of the worker's
	unread                     string   // why nobody knows whether it has one

	began  time.Time
	guard  io.Writer // told the group while it runs
	output *os.File  // without a name; its end is the progress, and the reason of a failure
	said   string

	lock   sync.Mutex
	group  int    // of the command, while it runs
	status int    // of the command, once it has ended
	reason string // why it is ended before its time
}

// run does the work and says why that failed, or nothing.
func (t *task) run(command []string) (failure string) {
	defer t.output.Close()
	if t.claims && bd("update", "--status=in_progress", "--", t.id) != nil {
		return "claim failed"
	}
	failure = t.execute(command)
	if !t.claims {
		return failure
	}
	if reason := t.endedFor(); reason == "shutdown" {
		bd("update", "--status=open", "--assignee=", "--", t.id)
	} else if reason != "" {
		// It may be somebody else's by now. A `bd` without these options leaves it to the orchestrator.
		bd("update", "--status=open", "--if-status=in_progress", "--if-assignee=", "--", t.id)
	} else if failure == "" {
		bd("close", "--", t.id) // Still DONE where this fails: the orchestrator has a look.
	}
	return failure
}

// execute runs the command in a process group of its own, of which nothing is left afterwards.
func (t *task) execute(command []string) (failure string) {
	if t.unread != "" {
		return t.unread
	}
	if len(t.own) > 0 {
		command = t.own
	}
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = strings.ReplaceAll(word, "{id}", t.id)
	}
	process := exec.Command(words[0], words[1:]...)
	process.Stdout, process.Stderr = t.output, t.output
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	process.Env = append(os.Environ(), "BW_ISSUE_ID="+t.id, "BW_ISSUE_TITLE="+t.title,
		fmt.Sprintf("BW_ISSUE_PRIORITY=%d", t.priority), "BW_WORKER_ID="+t.worker,
		fmt.Sprintf("BW_ATTEMPT=%d", t.attempt))

	t.lock.Lock()
	if t.reason != "" {
		t.lock.Unlock()
		return t.reason
	}
	err := process.Start()
	if err == nil {
		t.group = process.Process.Pid
		fmt.Fprintln(t.guard, t.group)
	}
	t.lock.Unlock()
	if err == nil {
		err = process.Wait()
		t.signal(syscall.SIGKILL) // What the command has left behind.
		fmt.Fprintln(t.guard)
	}

	t.lock.Lock()
	defer t.lock.Unlock()
	t.group = 0
	if t.reason != "" {
		return t.reason
	}
	if exit, isExit := err.(*exec.ExitError); isExit {
		t.status = exit.ExitCode()
		if line := t.lastLine(); line != "" {
			return line
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// end asks the process group to end, and kills it when the grace is over.
func (t *task) end(reason string, grace time.Duration) {
	t.lock.Lock()
	if t.reason == "" {
		t.reason = reason
	}
	t.lock.Unlock()
	t.signal(syscall.SIGTERM)
	time.AfterFunc(grace, func() { t.signal(syscall.SIGKILL) })
}

func (t *task) signal(which syscall.Signal) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.group != 0 {
		syscall.Kill(-t.group, which)
	}
}

// outcome is that of FAILED.
func (t *task) outcome() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case t.reason != "":
		return t.reason
	case t.status == temporary:
		return "retry"
	}
	return "error"
}

func (t *task) endedFor() string {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.reason
}

// news is the newest line of output and the percentage in it, where it is another one than before.
func (t *task) news() (activity string, percent *float64, isNews bool) {
	activity = cut(t.lastLine(), 200)
	if activity == "" || activity == t.said {
		return
	}
	t.said = activity
	if found := percentage.FindStringSubmatch(activity); found != nil {
		if value, err := strconv.ParseFloat(found[1], 64); err == nil && value <= 100 {
			percent = &value
		}
	}
	return activity, percent, true
}

// temporary is the exit status (sysexits) of what is to be tried again without charge.
const temporary = 75

var (
	percentage = regexp.MustCompile(`(\d+(?:\.\d+)?) ?%`)
	invisible  = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]`)
)

// lastLine is the last line of the output that shows anything, without what steers a terminal.
func (t *task) lastLine() string {
	size, err := t.output.Seek(0, io.SeekCurrent) // It moves with what the command writes.
	if err != nil {
		return ""
	}
	tail := make([]byte, 4096)
	count, _ := t.output.ReadAt(tail, int64(math.Max(0, float64(size-4096))))
	text := invisible.ReplaceAllString(strings.ToValidUTF8(string(tail[:count]), "?"), "")
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" {
			return cut(line, 300)
		}
	}
	return ""
}

func cut(text string, charactersMax int) string {
	if characters := []rune(text); len(characters) > charactersMax {
		return string(characters[:charactersMax])
	}
	return text
}

// --- what a TASK says ----------------------------------------------------------------------------

type message map[string]any

// integer takes 2.0 for 2, and nothing else for a number than a number.
func (m message) integer(name string) (float64, bool) {
	value, ok := m[name].(float64)
	return value, ok && value == math.Trunc(value)
}

// readTask is of no use for a message that lacks a field, or has one of a wrong type.
func readTask(m message) (t *task, ok bool) {
	t = &task{began: time.Now(), attempt: 1}
	t.id, _ = m["issue_id"].(string)
	t.worker, _ = m["worker_id"].(string)
	title, hasTitle := m["title"].(string)
	_, hasTime := m["timestamp"].(float64)
	priority, hasPriority := m.integer("priority")
	if t.id == "" || t.worker == "" || !hasTitle || !hasTime || !hasPriority || priority < 0 || priority > 4 {
		return nil, false
	}
	t.title, t.priority = strings.ReplaceAll(title, "\x00", ""), int(priority)
	_, t.speaks11 = m["version"].(string)
	t.claims = m["claims"] == "worker" || !t.speaks11 && isBdProject()
	payload, _ := m["payload"].(map[string]any)
	if file, isLarge := m["payload_file"].(string); isLarge {
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &payload) != nil {
			t.unread = "cannot read " + file
		}
	}
	words, _ := payload["command"].([]any)
	for _, each := range words {
		if word, isText := each.(string); isText {
			t.own = append(t.own, word)
		}
	}
	if len(t.own) < len(words) {
		t.own = nil
	}
	if t.speaks11 {
		t.request, _ = m["request_id"].(string)
		if seconds, _ := m["timeout_seconds"].(float64); seconds > 0 && seconds < 1e9 {
			t.timeout = time.Duration(seconds * float64(time.Second))
		}
		if attempt, isNumber := m.integer("attempt"); isNumber {
			t.attempt = int(attempt)
		}
	}
	return t, true
}

// version adds what answers to a TASK of 1.1 have behind the fields of version 1.
func (t *task) version(fields ...field) []field {
	if t.speaks11 {
		return append(fields, field{"version", "1.1"})
	}
	return fields
}

// isBdProject tells whether a folder .beads is here or above.
func isBdProject() bool {
	folder, _ := os.Getwd()
	for {
		if info, err := os.Stat(filepath.Join(folder, ".beads")); err == nil && info.IsDir() {
			return true
		}
		if folder == filepath.Dir(folder) {
			return false
		}
		folder = filepath.Dir(folder)
	}
}

// bd calls the tracker. It leads a group of its own, so that a Ctrl-C does not end it half-way, and
// does not write to our stderr: where nobody reads that, it would be killed.
func bd(words ...string) error {
	call := exec.Command("bd", words...)
	call.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := call.Run()
	if err != nil {
		log("bd %s: %v", words[0], err)
	}
	return err
}
