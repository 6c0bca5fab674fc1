// A worker of beads-workers (docs/PROTOCOL.md) that runs a command for each task:
//
//	ORCHESTRATOR_PID=PID bw-worker COMMAND [ARG...]
//
// {id} in an ARG is the id; BW_ISSUE_ID, BW_ISSUE_TITLE, BW_ISSUE_PRIORITY, BW_WORKER_ID and
// BW_ATTEMPT say more. Here is the conversation; what is done for a task is in task.go.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"
)

const (
	lineBytesMax     = 1 << 20
	heartbeatSeconds = 5
	shutdownGrace    = 5 * time.Second // of a task that is asked to end, before it is killed
	lostGrace        = time.Second / 2
)

// guardScript ends the process group it was told last, once the worker that told it is gone.
const guardScript = `while read -r group; do last=$group; done; [ -z "$last" ] || kill -KILL "-$last"`

type worker struct {
	link        net.Conn
	guard       io.Writer // told the task's process group, and an empty line at its end
	name        string
	command     []string
	task        *task // nil while there is nothing to do
	lastRequest string
	ended       chan string // why the task has failed; empty after success
	waited      <-chan time.Time
}

func main() {
	path := os.Getenv("BW_SOCKET")
	if pid := os.Getenv("ORCHESTRATOR_PID"); path == "" && pid != "" {
		path = "/tmp/beads-workers-" + pid + ".sock"
	}
	if path == "" || len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: ORCHESTRATOR_PID=PID bw-worker COMMAND [ARG...]")
		os.Exit(2)
	}
	// With a handler a stderr that nobody reads is an error of its write, which log ignores.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	link, err := connect(path)
	if err != nil {
		log("cannot connect to %s: %v", path, err)
		os.Exit(1)
	}
	name := fmt.Sprintf("W%d", os.Getpid())
	w := &worker{link: link, name: name, command: os.Args[1:], ended: make(chan string, 1)}
	w.guard = startGuard()
	os.Exit(w.talk())
}

// talk is the whole life of a connection: one thing at a time, so that nothing needs a lock.
func (w *worker) talk() (status int) {
	lines := make(chan []byte)
	go readLines(w.link, lines)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	beat := time.NewTicker(heartbeatSeconds * time.Second * 4 / 5)
	look := time.NewTicker(time.Second)
	w.ready()
	for {
		select {
		case line, open := <-lines:
			if !open {
				w.leave("lost", lostGrace)
				log("the orchestrator is gone")
				return 1
			}
			if w.obey(line) {
				w.leave("shutdown", shutdownGrace)
				return 0
			}
		case failure := <-w.ended:
			w.answer(failure)
			w.ready()
		case <-w.waited:
			w.ready()
		case <-beat.C:
			w.send("HEARTBEAT", field{"version", "1.1"})
		case <-look.C:
			w.progress()
		case <-signals:
			w.leave("shutdown", shutdownGrace)
			return 0
		}
	}
}

// obey does what a line asks for. What is no message, or of an unknown type, changes nothing.
func (w *worker) obey(line []byte) (shutdown bool) {
	var message message
	if !utf8.Valid(line) || json.Unmarshal(line, &message) != nil {
		log("ignored: %.300q", line)
		return false
	}
	switch message["type"] {
	case "TASK":
		if t, ok := readTask(message); ok {
			w.take(t)
		} else {
			log("ignored: %.300q", line)
		}
	case "WAIT":
		if seconds, ok := message.integer("wait_seconds"); ok && w.task == nil {
			seconds = math.Min(math.Max(seconds, 1), 3600)
			w.waited = time.After(time.Duration(seconds) * time.Second)
		}
	case "CANCEL":
		// "revoked" means only what has not started; here everything starts at once.
		if w.task != nil && message["issue_id"] == w.task.id && message["reason"] != "revoked" {
			w.task.end("cancelled", shutdownGrace)
		}
	case "SHUTDOWN":
		return true
	}
	return false
}

// take begins a TASK, unless it is one that is known already, or one too many.
func (w *worker) take(t *task) {
	switch {
	case w.task != nil && w.task.id == t.id, t.request != "" && t.request == w.lastRequest:
		log("%s has come before", t.id)
	case w.task != nil:
		w.fail(t, "busy", "error", 0)
	default:
		output, err := os.CreateTemp("", "bw-worker-")
		if err != nil {
			w.fail(t, err.Error(), "error", 0)
			w.ready()
			return
		}
		os.Remove(output.Name())
		t.output = output
		w.task, w.lastRequest, w.waited, w.name = t, t.request, nil, t.worker
		t.guard = w.guard
		go func() { w.ended <- t.run(w.command) }()
		if t.timeout > 0 {
			time.AfterFunc(t.timeout, func() { t.end("timeout", shutdownGrace) })
		}
	}
}

// answer says DONE or FAILED for the task that has come to its end.
func (w *worker) answer(failure string) {
	t, milliseconds := w.task, time.Since(w.task.began).Milliseconds()
	w.task = nil
	if failure != "" {
		w.fail(t, failure, t.outcome(), milliseconds)
		return
	}
	w.send("DONE", t.version(field{"issue_id", t.id}, field{"duration_ms", milliseconds})...)
}

func (w *worker) fail(t *task, failure, outcome string, milliseconds int64) {
	fields := t.version(field{"issue_id", t.id}, field{"error", failure}, field{"duration_ms", milliseconds})
	if t.speaks11 {
		fields = append(fields, field{"outcome", outcome})
	}
	w.send("FAILED", fields...)
}

// leave ends the task. One that has come to its end by itself just now is still answered.
func (w *worker) leave(reason string, grace time.Duration) {
	if w.task != nil {
		w.task.end(reason, grace)
		if failure := <-w.ended; w.task.endedFor() != reason || failure == "" {
			w.answer(failure)
		}
	}
	w.link.Close()
}

func (w *worker) ready() {
	w.waited = nil
	w.send("READY", field{"version", "1.1"},
		field{"features", []string{"cancel", "grouped", "heartbeat"}},
		field{"heartbeat_seconds", heartbeatSeconds})
}

func (w *worker) progress() {
	if w.task == nil || w.task.request == "" {
		return
	}
	if activity, percent, isNews := w.task.news(); isNews {
		w.send("PROGRESS", field{"version", "1.1"}, field{"issue_id", w.task.id},
			field{"percent", percent}, field{"activity", activity})
	}
}

// --- the wire ------------------------------------------------------------------------------------

type field struct {
	name  string
	value any
}

// send writes one line, its fields in the order of the protocol.
func (w *worker) send(kind string, more ...field) {
	now := float64(time.Now().UnixMilli()) / 1000
	var line bytes.Buffer
	for i, each := range append([]field{{"type", kind}, {"worker_id", w.name}, {"timestamp", now}}, more...) {
		value, _ := json.Marshal(each.value)
		fmt.Fprintf(&line, "%c%q:%s", "{,"[min(i, 1)], each.name, value)
	}
	line.WriteString("}\n")
	w.link.Write(line.Bytes()) // Where this fails, the end of the stream has come, or soon will.
}

// readLines ends at the end of the stream. A line that was cut off there, or too long, is dropped.
func readLines(link net.Conn, lines chan<- []byte) {
	defer close(lines)
	reader := bufio.NewReaderSize(link, lineBytesMax+1)
	for isTooLong := false; ; {
		line, err := reader.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			isTooLong = true
			continue
		}
		if err != nil {
			return
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && !isTooLong {
			lines <- append([]byte(nil), line...)
		}
		isTooLong = false
	}
}

func connect(path string) (link net.Conn, err error) {
	for _, pause := range []time.Duration{1, 2, 4, 0} {
		if link, err = net.Dial("unix", path); err == nil || pause == 0 {
			return link, err
		}
		log("cannot connect, trying again in %d s", pause)
		time.Sleep(pause * time.Second)
	}
	return
}

// startGuard starts a process that outlives this one by a moment: a worker that is killed cannot
// end its task itself. Without a guard (no sh) it works on.
func startGuard() io.Writer {
	guard := exec.Command("sh", "-c", guardScript)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	told, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		log("no guard: %v", err)
		return io.Discard
	}
	go guard.Wait()
	return told
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func log(format string, values ...any) { fmt.Fprintf(os.Stderr, "bw-worker: "+format+"\n", values...) }
