//! A worker of beads-workers (docs/PROTOCOL.md) that runs a command for each task:
//!
//!     ORCHESTRATOR_PID=PID bw-worker COMMAND [ARG...]
//!
//! {id} in an ARG is the issue's id; BW_ISSUE_ID, BW_ISSUE_TITLE, BW_ISSUE_PRIORITY, BW_WORKER_ID and
//! BW_ATTEMPT say more. Here is the conversation; what is done for a task is in task.rs.

mod task;

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, process, thread};
use task::{log, Guard, Reason, Task};

const LINE_BYTES_MAX: usize = 1 << 20;
const HEARTBEAT_SECONDS: u64 = 5;
const BEAT: Duration = Duration::from_millis(HEARTBEAT_SECONDS * 800);
const LOOK: Duration = Duration::from_secs(1);
/// Of a task that is asked to end, before it is killed.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
const LOST_GRACE: Duration = Duration::from_millis(500);

/// Ends the process group that it was told last, once the worker that told it is gone.
const GUARD_SCRIPT: &str =
    r#"while read -r group; do last=$group; done; [ -z "$last" ] || kill -KILL "-$last""#;

enum Event {
    Line(Vec<u8>),
    Lost,
    /// A signal: somebody wants this worker to leave.
    Told,
    /// Why the task at hand has failed; nothing after success.
    Ended(Option<String>),
}

struct Worker {
    link: UnixStream,
    name: String,
    command: Vec<String>,
    events: Sender<Event>,
    guard: Guard,
    /// None while there is nothing to do.
    task: Option<Arc<Task>>,
    last_request: String,
    ready_at: Option<Instant>,
    timeout_at: Option<Instant>,
}

fn main() {
    let command: Vec<String> = env::args().skip(1).collect();
    let path = env::var("BW_SOCKET").or_else(|_| {
        env::var("ORCHESTRATOR_PID").map(|pid| format!("/tmp/beads-workers-{pid}.sock"))
    });
    let (Ok(path), false) = (path, command.is_empty()) else {
        log("usage: ORCHESTRATOR_PID=PID bw-worker COMMAND [ARG...]");
        process::exit(2);
    };
    let Some(link) = connect(&path) else {
        log(&format!("cannot connect to {path}"));
        process::exit(1);
    };
    let (events, inbox) = channel();
    listen_for_signals(events.clone()).expect("a pair of sockets");
    let (reader, lines) = (link.try_clone().expect("a second handle"), events.clone());
    thread::spawn(move || read_lines(reader, lines));
    let name = format!("W{}", process::id());
    let mut worker = Worker {
        link,
        name,
        command,
        events,
        guard: start_guard(),
        task: None,
        last_request: String::new(),
        ready_at: None,
        timeout_at: None,
    };
    process::exit(worker.talk(&inbox));
}

impl Worker {
    /// The whole life of a connection: one thing at a time.
    fn talk(&mut self, inbox: &Receiver<Event>) -> i32 {
        self.ready();
        let (mut beat_at, mut look_at) = (Instant::now() + BEAT, Instant::now() + LOOK);
        loop {
            let now = Instant::now();
            if self.ready_at.map_or(false, |at| at <= now) {
                self.ready();
            }
            if self.timeout_at.map_or(false, |at| at <= now) {
                self.end(Reason::Timeout, SHUTDOWN_GRACE);
            }
            if beat_at <= now {
                self.send("HEARTBEAT", &[("version", json!("1.1"))]);
                beat_at = now + BEAT;
            }
            if look_at <= now {
                self.progress();
                look_at = now + LOOK;
            }
            let next = [Some(beat_at), Some(look_at), self.ready_at, self.timeout_at];
            let next = next.into_iter().flatten().min().unwrap_or(look_at);
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Event::Line(line)) => {
                    if self.obey(&line) {
                        self.leave(inbox, Reason::Shutdown, SHUTDOWN_GRACE);
                        return 0;
                    }
                }
                Ok(Event::Ended(failure)) => {
                    self.answer(failure);
                    self.ready();
                }
                Ok(Event::Told) => {
                    self.leave(inbox, Reason::Shutdown, SHUTDOWN_GRACE);
                    return 0;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Lost) | Err(RecvTimeoutError::Disconnected) => {
                    self.leave(inbox, Reason::Lost, LOST_GRACE);
                    log("the orchestrator is gone");
                    return 1;
                }
            }
        }
    }

    /// Does what a line asks for; true is SHUTDOWN. What is no message, or of an unknown type,
    /// changes nothing.
    fn obey(&mut self, line: &[u8]) -> bool {
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        match message["type"].as_str() {
            Some("TASK") => match Task::read(&message) {
                Some(task) => self.take(task),
                None => log("a TASK without its fields"),
            },
            Some("WAIT") if self.task.is_none() => {
                if let Some(seconds) = task::integer(&message["wait_seconds"]) {
                    let seconds = seconds.clamp(1.0, 3600.0) as u64;
                    self.ready_at = Some(Instant::now() + Duration::from_secs(seconds));
                }
            }
            // "revoked" means only what has not started; here everything starts at once.
            Some("CANCEL") if message["reason"] != "revoked" => {
                if self
                    .task
                    .as_ref()
                    .map_or(false, |task| message["issue_id"] == *task.id)
                {
                    self.end(Reason::Cancelled, SHUTDOWN_GRACE);
                }
            }
            Some("SHUTDOWN") => return true,
            _ => {}
        }
        false
    }

    /// Begins a TASK, unless it is one that is known already, or one too many.
    fn take(&mut self, fresh: Task) {
        let is_repeated = !fresh.request.is_empty() && fresh.request == self.last_request;
        match &self.task {
            Some(task) if task.id == fresh.id => {}
            _ if is_repeated => {}
            Some(_) => self.answer_for(&fresh, Some("busy".into())),
            None => {
                let (task, command, events) =
                    (Arc::new(fresh), self.command.clone(), self.events.clone());
                let guard = self.guard.clone();
                self.name = task.worker.clone();
                self.last_request = task.request.clone();
                self.ready_at = None;
                self.timeout_at = task
                    .timeout
                    .and_then(|timeout| task.began.checked_add(timeout));
                self.task = Some(task.clone());
                thread::spawn(move || events.send(Event::Ended(task.run(&command, &guard))));
            }
        }
    }

    fn end(&mut self, reason: Reason, grace: Duration) {
        self.timeout_at = None;
        if let Some(task) = self.task.clone() {
            task.end(reason);
            thread::spawn(move || {
                thread::sleep(grace);
                task.kill();
            });
        }
    }

    fn answer(&mut self, failure: Option<String>) {
        self.timeout_at = None;
        if let Some(task) = self.task.take() {
            self.answer_for(&task, failure);
        }
    }

    /// Says DONE or FAILED.
    fn answer_for(&mut self, task: &Task, failure: Option<String>) {
        let milliseconds = task.began.elapsed().as_millis() as u64;
        let mut fields = vec![("issue_id", json!(task.id))];
        let kind = if failure.is_some() { "FAILED" } else { "DONE" };
        fields.extend(failure.as_ref().map(|error| ("error", json!(error))));
        fields.push(("duration_ms", json!(milliseconds)));
        if task.speaks11 {
            fields.push(("version", json!("1.1")));
            fields.extend(failure.map(|_| ("outcome", json!(task.outcome()))));
        }
        self.send(kind, &fields);
    }

    /// Ends the task. One that has come to its end by itself just now is still answered.
    fn leave(&mut self, inbox: &Receiver<Event>, reason: Reason, grace: Duration) {
        let Some(task) = self.task.clone() else {
            return;
        };
        self.end(reason, grace);
        let failure = inbox.iter().find_map(|event| match event {
            Event::Ended(failure) => Some(failure),
            _ => None,
        });
        if let Some(failure) = failure {
            if failure.is_none() || task.reason() != Some(reason) {
                self.answer(failure);
            }
        }
    }

    fn ready(&mut self) {
        self.ready_at = None;
        self.send(
            "READY",
            &[
                ("version", json!("1.1")),
                ("features", json!(["cancel", "grouped", "heartbeat"])),
                ("heartbeat_seconds", json!(HEARTBEAT_SECONDS)),
            ],
        );
    }

    fn progress(&mut self) {
        let Some(task) = self.task.clone() else {
            return;
        };
        if let Some((activity, percent)) = task.news() {
            self.send(
                "PROGRESS",
                &[
                    ("version", json!("1.1")),
                    ("issue_id", json!(task.id)),
                    ("percent", json!(percent)),
                    ("activity", json!(activity)),
                ],
            );
        }
    }

    /// Writes one line, its fields in the order of the protocol.
    fn send(&mut self, kind: &str, fields: &[(&str, Value)]) {
        let mut line = format!("{{\"type\":\"{kind}\",\"worker_id\":{}", json!(self.name));
        line += &format!(",\"timestamp\":{:.3}", task::now());
        for (name, value) in fields {
            line += &format!(",\"{name}\":{value}");
        }
        line += "}\n";
        // Where this fails, the end of the stream has come, or soon will.
        let _ = self.link.write_all(line.as_bytes());
    }
}

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn write(fd: i32, data: *const u8, length: usize) -> isize;
}

/// The descriptor to which a signal writes a byte: a handler may do little more.
static TELLER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell(_: i32) {
    unsafe { write(TELLER.load(Ordering::Relaxed), b"!".as_ptr(), 1) };
}

/// Starts a process that outlives this one by a moment: a worker that is killed cannot end its task
/// itself. Without a guard (no sh) it works on.
fn start_guard() -> Guard {
    let guard = Command::new("sh")
        .args(["-c", GUARD_SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    Arc::new(guard.ok().and_then(|child| child.stdin))
}

/// HUP, INT and TERM become events.
fn listen_for_signals(events: Sender<Event>) -> std::io::Result<()> {
    let (mut told, teller) = UnixStream::pair()?;
    TELLER.store(teller.into_raw_fd(), Ordering::Relaxed);
    for number in [1, 2, 15] {
        unsafe { signal(number, tell) };
    }
    thread::spawn(move || {
        while told.read_exact(&mut [0]).is_ok() && events.send(Event::Told).is_ok() {}
    });
    Ok(())
}

/// Ends at the end of the stream. A line that was cut off there, or too long, is dropped.
fn read_lines(link: UnixStream, lines: Sender<Event>) {
    let mut reader = BufReader::new(link);
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let left = (LINE_BYTES_MAX + 1 - line.len()) as u64;
        match reader.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(count) if count > 0 => {}
            _ => break,
        }
        if line.last() == Some(&b'\n') {
            if !is_too_long && line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                let _ = lines.send(Event::Line(std::mem::take(&mut line)));
            }
            is_too_long = false;
            line.clear();
        } else if line.len() > LINE_BYTES_MAX {
            is_too_long = true;
            line.clear();
        }
    }
    let _ = lines.send(Event::Lost);
}

fn connect(path: &str) -> Option<UnixStream> {
    for pause in [1, 2, 4, 0] {
        match UnixStream::connect(path) {
            Ok(link) => return Some(link),
            Err(error) => log(&error.to_string()),
        }
        thread::sleep(Duration::from_secs(pause));
    }
    None
}
