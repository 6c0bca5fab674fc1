#!/usr/bin/env node
// A worker of beads-workers (docs/PROTOCOL.md) that runs a command for each task:
//   ORCHESTRATOR_PID=PID bw-worker.js COMMAND [ARG...]
// {id} in an ARG is the issue's id; BW_ISSUE_ID, BW_ISSUE_TITLE, BW_ISSUE_PRIORITY, BW_WORKER_ID and
// BW_ATTEMPT say more.
"use strict";
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { spawn } = require("node:child_process");

const LINE_BYTES_MAX = 1 << 20;
const HEARTBEAT_SECONDS = 5;
const SHUTDOWN_GRACE_MS = 5000; // of a task that is asked to end, before it is killed
const LOST_GRACE_MS = 500;
// Ends the process group that it was told last, once the worker that told it is gone.
const GUARD_SCRIPT = 'while read -r group; do last=$group; done; [ -z "$last" ] || kill -KILL "-$last"';

/**
 * @typedef {Record<string, any>} Message
 * @typedef {object} Task
 * @property {string} id
 * @property {Message} message  the TASK
 * @property {boolean} speaks11  by a TASK of version 1 nothing of 1.1 is agreed
 * @property {boolean} claims  this worker claims and closes, through `bd`
 * @property {number} began
 * @property {number} output  a file without a name: its end is the progress, and why the task failed
 * @property {string} said  the newest progress
 * @property {number} [group]  the command's process group, while it runs
 * @property {string} [reason]  why it is ended before its time
 * @property {number | string} [status]  how the command has ended
 * @property {NodeJS.Timeout} [timeout]
 * @property {Promise<void>} [over]
 */

const TEMPORARY = 75; // Of sysexits(3): try again, without charge.
const command = process.argv.slice(2);
let name = `W${process.pid}`;
/** @type {net.Socket} */ let link;
/** @type {import("node:stream").Writable | null} */ let guard;
/** @type {Task | undefined} */ let task;
/** @type {NodeJS.Timeout | undefined} */ let waiting;
let lastRequest = "";
let isLeaving = false;

/** Does what a line asks for. What is no message, or of an unknown type, changes nothing.
 * @param {Buffer} line */
function obey(line) {
  /** @type {Message} */ let message;
  try {
    message = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch {
    return log(`ignored: ${line.toString("latin1", 0, 300)}`);
  }
  switch (message?.type) {
    case "TASK":
      return isTask(message) ? take(message) : log(`no TASK: ${line.toString("latin1", 0, 300)}`);
    case "WAIT":
      if (Number.isInteger(message.wait_seconds) && !task) {
        clearTimeout(waiting);
        waiting = setTimeout(ready, 1000 * Math.min(Math.max(message.wait_seconds, 1), 3600));
      }
      return;
    case "CANCEL": // "revoked" means only what has not started; here everything starts at once.
      if (task && task.id === message.issue_id && message.reason !== "revoked") end(task, "cancelled", SHUTDOWN_GRACE_MS);
      return;
    case "SHUTDOWN":
      return void leave(0, SHUTDOWN_GRACE_MS);
  }
}

/** @param {Message} message */
function isTask(message) {
  const isText = (/** @type {unknown} */ value) => typeof value === "string" && value !== "";
  return isText(message.issue_id) && isText(message.worker_id) && typeof message.title === "string"
    && Number.isFinite(message.timestamp) && [0, 1, 2, 3, 4].includes(message.priority);
}

/** Begins a TASK, unless it is one that is known already, or one too many.
 * @param {Message} message */
function take(message) {
  const { issue_id: id, request_id: request = "" } = message;
  const speaks11 = typeof message.version === "string";
  const claims = message.claims === "worker" || (!speaks11 && isBdProject());
  if (task?.id === id || (request && request === lastRequest)) return log(`${id} has come before`);
  const fresh = { id, message, speaks11, claims, began: performance.now(), output: -1, said: "" };
  if (task) return answer(fresh, "busy");
  clearTimeout(waiting);
  name = message.worker_id;
  lastRequest = request;
  task = fresh;
  task.over = run(task);
}

/** The task from its claim to its answer.
 * @param {Task} mine */
async function run(mine) {
  const seconds = mine.speaks11 ? mine.message.timeout_seconds : 0;
  if (seconds > 0 && seconds < 2e6) mine.timeout = setTimeout(end, seconds * 1000, mine, "timeout", SHUTDOWN_GRACE_MS);
  let failure = "claim failed";
  if (!mine.claims || await bd("update", "--status=in_progress", "--", mine.id)) {
    failure = mine.reason ?? await execute(mine).catch((error) => String(error.message));
    // But after SHUTDOWN it may be somebody else's by now. A `bd` without these options leaves it to the orchestrator.
    const holder = mine.reason === "shutdown" ? ["--assignee="] : ["--if-status=in_progress", "--if-assignee="];
    if (mine.claims && mine.reason) await bd("update", "--status=open", ...holder, "--", mine.id);
    else if (mine.claims && !failure) await bd("close", "--", mine.id); // Still DONE where this fails.
  }
  clearTimeout(mine.timeout);
  if (mine.output >= 0) fs.closeSync(mine.output);
  task = undefined;
  if (!["shutdown", "lost"].includes(mine.reason ?? "") || !failure) answer(mine, failure);
  if (!isLeaving) ready();
}

/** Runs the command in a process group of its own, of which nothing is left afterwards.
 * @param {Task} mine
 * @returns {Promise<string>} why it failed, or nothing */
async function execute(mine) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "bw-worker-"));
  mine.output = fs.openSync(path.join(folder, "output"), "w+");
  fs.rmSync(folder, { recursive: true });
  const { title, priority, worker_id, attempt = 1, payload_file: file } = mine.message;
  const payload = file ? JSON.parse(fs.readFileSync(file, "utf8")) : mine.message.payload;
  const env = {
    ...process.env, BW_ISSUE_ID: mine.id, BW_ISSUE_TITLE: title.replaceAll("\0", ""),
    BW_ISSUE_PRIORITY: String(priority), BW_WORKER_ID: worker_id, BW_ATTEMPT: String(attempt),
  };
  const own = payload?.command; // The issue's own.
  const isOwn = Array.isArray(own) && own.length && own.every((word) => typeof word === "string");
  const [program, ...words] = (isOwn ? own : command).map((word) => word.replaceAll("{id}", () => mine.id));
  const child = spawn(program, words, { env, detached: true, stdio: ["ignore", mine.output, mine.output] });
  mine.group = child.pid;
  guard?.write(`${child.pid ?? ""}\n`);
  mine.status = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code, signal) => resolve(signal ?? code));
  });
  kill(mine, "SIGKILL"); // What the command has left behind.
  guard?.write("\n");
  mine.group = undefined;
  if (mine.reason || mine.status === 0) return mine.reason ?? "";
  return lastLine(mine) || `exit status ${mine.status}`;
}

/** Asks the process group to end, and kills it when the grace is over.
 * @param {Task} mine @param {string} reason @param {number} graceMs */
function end(mine, reason, graceMs) {
  mine.reason ??= reason;
  kill(mine, "SIGTERM");
  setTimeout(kill, graceMs, mine, "SIGKILL").unref();
}

/** @param {Task} mine @param {NodeJS.Signals} signal */
function kill(mine, signal) {
  if (mine.group === undefined) return;
  try {
    process.kill(-mine.group, signal);
  } catch {} // It is gone.
}

/** Says DONE or FAILED.
 * @param {Task} mine @param {string} failure */
function answer(mine, failure) {
  const duration_ms = Math.round(performance.now() - mine.began);
  const version = mine.speaks11 ? { version: "1.1" } : {};
  if (!failure) return send("DONE", { issue_id: mine.id, duration_ms, ...version });
  const ended = mine.status === TEMPORARY ? "retry" : "error";
  const outcome = ["cancelled", "timeout"].includes(mine.reason ?? "") ? mine.reason : ended;
  send("FAILED", { issue_id: mine.id, error: failure, duration_ms, ...version, ...(mine.speaks11 && { outcome }) });
}

/** Says the newest line of the task's output, and the percentage in it. */
function progress() {
  if (!task?.message.request_id || !task.speaks11 || task.group === undefined) return;
  const activity = [...lastLine(task)].slice(0, 200).join("");
  if (!activity || activity === task.said) return;
  task.said = activity;
  const percent = Number(/(\d+(?:\.\d+)?) ?%/.exec(activity)?.[1] ?? NaN);
  send("PROGRESS", { version: "1.1", issue_id: task.id, percent: percent <= 100 ? percent : null, activity });
}

/** The last line of the output that shows anything, without what steers a terminal.
 * @param {Task} mine */
function lastLine(mine) {
  const tail = Buffer.alloc(4096);
  const count = fs.readSync(mine.output, tail, 0, 4096, Math.max(0, fs.fstatSync(mine.output).size - 4096));
  const text = tail.toString("utf8", 0, count).replace(/\x1b\[[0-9;?]*[A-Za-z]|[\0-\x08\x0b\x0c\x0e-\x1f\x7f]/g, "");
  const line = text.split(/[\r\n]/).map((each) => each.trim()).filter(Boolean).pop() ?? "";
  return [...line].slice(0, 300).join("");
}

/** Ends the task, gives its issue back, and goes.
 * @param {number} status @param {number} graceMs @param {string} reason */
async function leave(status, graceMs, reason = "shutdown") {
  if (isLeaving) return;
  isLeaving = true;
  if (task) {
    end(task, reason, graceMs);
    await task.over;
  }
  link.end(() => process.exit(status));
  link.on("error", () => process.exit(status));
  if (link.destroyed) process.exit(status);
}

/** Whether a folder .beads is here or above. */
function isBdProject(folder = process.cwd()) {
  if (fs.existsSync(path.join(folder, ".beads"))) return true;
  return folder !== path.dirname(folder) && isBdProject(path.dirname(folder));
}

/** Calls the tracker, in a group of its own: a Ctrl-C does not end it half-way. It does not write to our stderr: where
 * nobody reads that, it would be killed.
 * @param {string[]} words
 * @returns {Promise<boolean>} whether it succeeded */
function bd(...words) {
  return new Promise((resolve) => {
    const ended = (/** @type {unknown} */ how) => (how === 0 || log(`bd ${words[0]}: ${how}`), resolve(how === 0));
    spawn("bd", words, { detached: true, stdio: "ignore" }).on("error", ended).on("exit", (code, signal) => ended(signal ?? code));
  });
}

/** Starts a process that outlives this one by a moment: a worker that is killed cannot end its task itself. Without a
 * guard (no sh) it works on. */
function startGuard() {
  const child = spawn("sh", ["-c", GUARD_SCRIPT], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  child.on("error", (error) => log(error.message));
  child.stdin.on("error", () => {});
  child.unref();
  return child.stdin;
}

function ready() {
  send("READY", { version: "1.1", features: ["cancel", "grouped", "heartbeat"], heartbeat_seconds: HEARTBEAT_SECONDS });
}

/** Writes one line, its fields in the order of the protocol.
 * @param {string} type @param {Message} fields */
function send(type, fields) {
  if (link.writable) link.write(JSON.stringify({ type, worker_id: name, timestamp: Date.now() / 1000, ...fields }) + "\n");
}

/** Cuts the stream into lines. One that the end of the stream cut off, or that is too long, is dropped.
 * @returns {(chunk: Buffer) => void} */
function lineReader() {
  let part = [Buffer.alloc(0)];
  let length = 0;
  const add = (/** @type {Buffer} */ piece) => {
    length += piece.length;
    if (length <= LINE_BYTES_MAX) part.push(piece);
    else part = [];
  };
  return (chunk) => {
    for (let feed; (feed = chunk.indexOf(10)) >= 0; chunk = chunk.subarray(feed + 1)) {
      add(chunk.subarray(0, feed));
      const line = Buffer.concat(part);
      if (length <= LINE_BYTES_MAX && line.toString("latin1").trim() && !isLeaving) obey(line);
      part = [];
      length = 0;
    }
    add(chunk);
  };
}

/** @param {string} socket @param {number[]} pauses */
function connect(socket, pauses) {
  link = net.connect(socket);
  let hasConnected = false;
  link.on("data", lineReader());
  link.on("connect", () => {
    hasConnected = true;
    setInterval(send, HEARTBEAT_SECONDS * 800, "HEARTBEAT", { version: "1.1" });
    setInterval(progress, 1000);
    ready();
  });
  link.on("error", (error) => log(error.message));
  link.on("close", () => {
    if (hasConnected) return void leave(1, LOST_GRACE_MS, "lost");
    if (!pauses.length) process.exit(1);
    setTimeout(connect, pauses[0] * 1000, socket, pauses.slice(1));
  });
}

process.stderr.on("error", () => {}); // Nobody reads it any more: what is said there is lost.
/** @param {string} text */
function log(text) {
  process.stderr.write(`bw-worker: ${text}\n`);
}

const { BW_SOCKET, ORCHESTRATOR_PID } = process.env;
if (!command.length || !(BW_SOCKET || ORCHESTRATOR_PID)) {
  log("usage: ORCHESTRATOR_PID=PID bw-worker.js COMMAND [ARG...]");
  process.exit(2);
}
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => void leave(0, SHUTDOWN_GRACE_MS));
guard = startGuard();
connect(BW_SOCKET || `/tmp/beads-workers-${ORCHESTRATOR_PID}.sock`, [1, 2, 4]);
