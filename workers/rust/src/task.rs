//! One TASK and the process group that works on it.

use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, io};

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The exit status (sysexits) of what is to be tried again without charge.
const TEMPORARY: i32 = 75;

/// Is told the process group of the task at hand, and an empty line at its end.
pub type Guard = Arc<Option<ChildStdin>>;

/// Why a task is ended before its time.
#[derive(Clone, Copy, PartialEq)]
pub enum Reason {
    Cancelled,
    Timeout,
    Shutdown,
    Lost,
}

pub struct Task {
    pub id: String,
    pub worker: String,
    pub request: String,
    pub timeout: Option<Duration>,
    pub began: Instant,
    /// By a TASK of version 1 nothing of 1.1 is agreed.
    pub speaks11: bool,
    /// This worker claims and closes, through `bd`.
    claims: bool,
    /// The issue's own command, in place of the worker's.
    own: Vec<String>,
    /// Why nobody knows whether it has one.
    unread: Option<String>,
    environment: Vec<(&'static str, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the command, while it runs.
    group: Option<i32>,
    reason: Option<Reason>,
    /// The command's exit status, once it has ended.
    status: Option<i32>,
    /// A file without a name; its end is the progress, and the reason of a failure.
    output: Option<File>,
    said: String,
}

/// Takes 2.0 for 2, and nothing else for a number than a number.
pub fn integer(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.fract() == 0.0)
}

/// Seconds since the Unix epoch.
pub fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

impl Task {
    /// Nothing for a message that lacks a field, or has one of a wrong type.
    pub fn read(message: &Value) -> Option<Task> {
        let text = |name: &str| message[name].as_str().map(str::to_owned);
        let id = text("issue_id").filter(|id| !id.is_empty())?;
        let worker = text("worker_id").filter(|worker| !worker.is_empty())?;
        let title = text("title")?.replace('\0', "");
        message["timestamp"].as_f64()?;
        let priority =
            integer(&message["priority"]).filter(|number| (0.0..=4.0).contains(number))?;
        let speaks11 = message["version"].is_string();
        let claims = message["claims"] == "worker" || !speaks11 && is_bd_project();
        let request = text("request_id").filter(|_| speaks11).unwrap_or_default();
        let seconds = message["timeout_seconds"].as_f64();
        let timeout = seconds
            .filter(|&s| speaks11 && s > 0.0 && s < 1e9)
            .map(Duration::from_secs_f64);
        let attempt = integer(&message["attempt"]).unwrap_or(1.0);
        let read = |file| -> io::Result<Value> { Ok(serde_json::from_slice(&fs::read(file)?)?) };
        let (payload, unread) = match message["payload_file"].as_str().map(read) {
            None => (message["payload"].clone(), None),
            Some(Ok(payload)) => (payload, None),
            Some(Err(error)) => (Value::Null, Some(format!("its payload_file: {error}"))),
        };
        let words = payload["command"].as_array();
        let own = words.and_then(|words| words.iter().map(|w| w.as_str().map(str::to_owned)).collect());
        let own: Vec<String> = own.unwrap_or_default();
        let environment = vec![
            ("BW_ISSUE_ID", id.clone()),
            ("BW_ISSUE_TITLE", title),
            ("BW_ISSUE_PRIORITY", priority.to_string()),
            ("BW_WORKER_ID", worker.clone()),
            ("BW_ATTEMPT", attempt.to_string()),
        ];
        let (began, state) = (Instant::now(), Mutex::default());
        Some(Task {
            id,
            worker,
            request,
            timeout,
            began,
            speaks11,
            claims,
            own,
            unread,
            environment,
            state,
        })
    }

    /// Does the work and says why that failed, or nothing.
    pub fn run(&self, command: &[String], guard: &Guard) -> Option<String> {
        if self.claims && !bd(&["update", "--status=in_progress", "--", &self.id]) {
            return Some("claim failed".into());
        }
        let failure = self
            .execute(command, guard)
            .unwrap_or_else(|error| Some(error.to_string()));
        if self.claims && self.reason() == Some(Reason::Shutdown) {
            bd(&["update", "--status=open", "--assignee=", "--", &self.id]);
        } else if self.claims && self.reason().is_some() {
            // It may be somebody else's by now. A `bd` without these options leaves it to the
            // orchestrator.
            let ours = ["--if-status=in_progress", "--if-assignee="];
            bd(&["update", "--status=open", ours[0], ours[1], "--", &self.id]);
        } else if self.claims && failure.is_none() {
            // Still DONE where this fails: the orchestrator has a look.
            bd(&["close", "--", &self.id]);
        }
        failure
    }

    /// Runs the command in a process group of its own, of which nothing is left afterwards.
    fn execute(&self, command: &[String], guard: &Guard) -> io::Result<Option<String>> {
        if self.unread.is_some() {
            return Ok(self.unread.clone());
        }
        let own = Some(&self.own[..]).filter(|own| !own.is_empty());
        let words: Vec<String> = own
            .unwrap_or(command)
            .iter()
            .map(|word| word.replace("{id}", &self.id))
            .collect();
        let output = nameless_file()?;
        let mut child = {
            let mut state = self.state.lock().unwrap();
            if let Some(reason) = state.reason {
                return Ok(Some(word(reason).into()));
            }
            let child = Command::new(&words[0])
                .args(&words[1..])
                .envs(self.environment.iter().cloned())
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output.try_clone()?)
                .process_group(0)
                .spawn()?;
            state.output = Some(output);
            state.group = Some(child.id() as i32);
            tell(guard, &child.id().to_string());
            child
        };
        let status = child.wait()?;
        self.kill(); // What the command has left behind.
        tell(guard, "");
        let mut state = self.state.lock().unwrap();
        state.group = None;
        state.status = status.code();
        Ok(match state.reason {
            Some(reason) => Some(word(reason).into()),
            None if status.success() => None,
            None => Some(last_line(&state.output).unwrap_or_else(|| status.to_string())),
        })
    }

    /// Asks the process group to end.
    pub fn end(&self, reason: Reason) {
        self.state.lock().unwrap().reason.get_or_insert(reason);
        self.signal(SIGTERM);
    }

    pub fn kill(&self) {
        self.signal(SIGKILL);
    }

    fn signal(&self, signal: i32) {
        if let Some(group) = self.state.lock().unwrap().group {
            // Two numbers and no memory: the call cannot do harm to this process.
            unsafe { kill(-group, signal) };
        }
    }

    pub fn reason(&self) -> Option<Reason> {
        self.state.lock().unwrap().reason
    }

    /// Of FAILED.
    pub fn outcome(&self) -> &'static str {
        match self.reason() {
            Some(Reason::Cancelled) => "cancelled",
            Some(Reason::Timeout) => "timeout",
            _ if self.state.lock().unwrap().status == Some(TEMPORARY) => "retry",
            _ => "error",
        }
    }

    /// The newest line of output and the percentage in it, where it is another one than before.
    pub fn news(&self) -> Option<(String, Option<f64>)> {
        let mut state = self.state.lock().unwrap();
        let line = last_line(&state.output)?;
        if self.request.is_empty() || line == state.said {
            return None;
        }
        state.said = line.clone();
        let before = line
            .split('%')
            .next()
            .filter(|before| before.len() < line.len());
        let number = before.and_then(|text| {
            text.trim_end()
                .rsplit(|c: char| !c.is_ascii_digit() && c != '.')
                .next()
        });
        let percent = number
            .and_then(|text| text.parse().ok())
            .filter(|&percent| percent <= 100.0);
        Some((line.chars().take(200).collect(), percent))
    }
}

fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Cancelled => "cancelled",
        Reason::Timeout => "timeout",
        Reason::Shutdown => "shutdown",
        Reason::Lost => "lost",
    }
}

fn nameless_file() -> io::Result<File> {
    let path = env::temp_dir().join(format!("bw-worker-{}-{}", process::id(), now()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// The last line that shows anything, without what steers a terminal.
fn last_line(output: &Option<File>) -> Option<String> {
    let file = output.as_ref()?;
    let mut tail = [0; 4096];
    let start = file.metadata().ok()?.len().saturating_sub(4096);
    let count = file.read_at(&mut tail, start).ok()?;
    let text = String::from_utf8_lossy(&tail[..count]);
    let (mut plain, mut in_escape) = (String::new(), false);
    for each in text.chars() {
        match each {
            '\x1b' => in_escape = true,
            _ if in_escape => in_escape = !each.is_ascii_alphabetic(),
            '\n' | '\r' => plain.push('\n'),
            _ if each.is_control() && each != '\t' => {}
            _ => plain.push(each),
        }
    }
    let line = plain
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    Some(line.chars().take(300).collect())
}

/// Whether a folder .beads is here or above.
fn is_bd_project() -> bool {
    env::current_dir().map_or(false, |here| {
        here.ancestors()
            .any(|folder| folder.join(".beads").is_dir())
    })
}

/// Calls the tracker, in a group of its own: a Ctrl-C does not end it half-way. It does not write
/// to our stderr: where nobody reads that, it would be killed.
fn bd(words: &[&str]) -> bool {
    let call = Command::new("bd")
        .args(words)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let succeeded = matches!(&call, Ok(status) if status.success());
    if !succeeded {
        log(&format!("bd {}: {call:?}", words[0]));
    }
    succeeded
}

fn tell(guard: &Guard, group: &str) {
    if let Some(mut pipe) = (**guard).as_ref() {
        let _ = pipe.write_all(format!("{group}\n").as_bytes()); // Without a guard we work on.
    }
}

/// A line to stderr; where nobody reads it, it is lost (`eprintln` would end this process).
pub fn log(text: &str) {
    let _ = writeln!(io::stderr(), "bw-worker: {text}");
}
