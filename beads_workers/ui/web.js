"use strict";
// The live page. Everything that comes from outside becomes text nodes; there is no markup from data.
(() => {
  const byId = (id) => document.getElementById(id);
  const meta = document.querySelector("meta[name=resumption]");
  const [key, port] = [meta.content, meta.dataset.port];
  let token = location.pathname.split("/")[1];
  const SVG = "http://www.w3.org/2000/svg";
  const BARS_MAX = 3000;
  const WORDS = {
    success: "done", error: "failed", timeout: "timed out", lost: "worker died", not_found: "not found",
    question: "asked a question", retry: "asked for a retry", cancelled: "cancelled", cut_off: "cut off", running: "running",
  };

  const FAULTS = new Set(["error", "timeout", "lost", "not_found"]);
  const REASONS = { "": "as asked", user_requested: "stopped as asked", idle_timeout: "nothing was left to do", error: "with an error" };

  // --- what is known ---------------------------------------------------------------------------
  let hello = { control: false };
  let fleet = { state: "connecting" };
  let shot = null;        // the newest snapshot
  let shotAt = 0;         // when it came, by our clock
  let attempts = [];      // of this run: [worker, issue, title, attempt, began, ended, outcome]
  let last = new Map();   // worker -> its newest of them
  let counts = new Map(); // outcome -> how many of them
  let dropped = 0;        // older ones, which nobody keeps for pages
  let open = null;        // the attempt that is read: a pin, as ui/attempt_view.py has it
  let connected = false;

  const isLive = () => connected && fleet.state === "live";
  const isOver = (state = fleet.state) => ["ended", "lost"].includes(state);
  // Without a fleet, the server of this page carries out what a person decides, or keeps it for the next start.
  const decides = () => hello.control && (isLive() || (connected && isOver()));
  let beganAt = null;     // when the run began, in milliseconds since the epoch
  const age = () => (isLive() ? (performance.now() - shotAt) / 1000 : 0);

  // --- text and elements -----------------------------------------------------------------------
  // Control and direction characters are seen, not obeyed, as in the terminal.
  const OBEYED = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const escaped = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
  const safe = (text) => String(text ?? "").replace(OBEYED, (c) => (c === "\n" ? "⏎" : c === "\t" ? " " : escaped(c)));
  const set = (node, text) => { if (node.said !== text) { node.said = text; node.textContent = text; } };
  const setClass = (node, name) => { if (node.named !== name) { node.named = name; node.className = name; } };
  const el = (tag, className, ...children) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.filter((child) => child !== null));
    return node;
  };
  const svg = (tag, attributes, ...children) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const swatch = (outcome) => svg("svg", { class: `swatch o-${outcome}`, width: 12, height: 12, "aria-hidden": "true" },
    svg("rect", { width: 12, height: 12, rx: 2 }));
  const foreign = (text, tag = "bdi", className = "") => el(tag, className, safe(text));
  const inLines = (text) => String(text ?? "").split("\n").map(safe).join("\n");
  // Children of a list by key: a row stays the same element for as long as its key is there. Rows
  // that go are taken out first: one that stays would lose the focus if it were moved past them.
  const keyed = (parent, items, key, make, update) => {
    const old = parent.rows || new Map();
    const now = new Map();
    const kept = new Set(items.map((item) => key(item)));
    for (const [id, row] of old) if (!kept.has(id)) row.remove();
    let at = parent.firstElementChild;
    for (const item of items) {
      const id = key(item);
      if (now.has(id)) continue;
      const row = old.get(id) || make(item);
      now.set(id, row);
      if (row === at) at = at.nextElementSibling;
      else parent.insertBefore(row, at);
      update?.(row, item);
    }
    parent.rows = now;
  };

  // --- figures ---------------------------------------------------------------------------------
  // As time_text.duration: two units in prose.
  const duration = (seconds) => {
    const whole = Math.round(Math.max(0, seconds));
    const units = (large, name, small, of) => {
      const rest = Math.floor((whole % large) / small);
      return `${Math.floor(whole / large)} ${name}${rest ? ` ${rest} ${of}` : ""}`;
    };
    if (seconds < 0.0995) return seconds >= 0.0005 ? `${Math.round(1000 * seconds)} ms` : "0 s";
    if (seconds < 9.95) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return units(60, "min", 1, "s");
    return whole < 86400 ? units(3600, "h", 60, "min") : units(86400, "d", 3600, "h");
  };
  const running = (seconds) => duration(Math.floor(Math.max(0, seconds)));
  // The time of day of a moment of the run; seconds only if they matter.
  const wall = (seconds, exact = true) => (beganAt === null ? running(seconds)
    : new Date(beganAt + 1000 * seconds).toLocaleTimeString("en-GB", exact ? {} : { hour: "2-digit", minute: "2-digit" }));
  const roughly = (seconds) => seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  const count = (n) => n.toLocaleString("en");
  const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
  const tokens = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)}M` : n >= 1000 ? `${(n / 1000).toFixed(1)}k` : `${n}`) + " tokens";
  const dollars = (n) => `$${n.toFixed(2)}`;
  const perMinute = (n) => (n >= 10 ? count(Math.round(n)) : n.toFixed(1));

  // --- overview --------------------------------------------------------------------------------
  const project = () => safe((shot.project || "").split("/").pop() || "beads-workers");

  // Exit 7: it ran to its end, and something in it failed.
  const endTone = () => {
    const code = shot?.ended?.exit_code ?? 0;
    return code === 0 ? "still" : code === 7 ? "warn" : "bad";
  };

  // Local date and time of a run's beginning or end, as "Fri 23:00".
  const moment = (at) => new Date(at).toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });
  const hours = () => {
    const at = shot.hours.begins_at ?? shot.hours.ends_at;
    return at && ["waiting", "running"].includes(shot.state) ? ` until ${moment(at)}` : "";
  };

  const stateNow = () => {
    if (!connected) return ["reconnecting", "how warn"];
    if (fleet.state === "none") return ["no fleet yet", "how still"];
    if (fleet.state === "lost") return ["orchestrator gone", "how bad"];
    if (fleet.state === "ended") return ["ended", endTone() === "still" ? "how still" : `how ${endTone()}`];
    if (fleet.state !== "live" || !shot) return ["connecting", "how still"];
    return [shot.state + hours(), shot.state === "running" ? "how live" : shot.state === "waiting" ? "how still" : "how warn"];
  };

  const servedUntil = () => (fleet.until ? `, and is served until ${moment(1000 * fleet.until)} at most` : "");
  const bannerNow = () => {
    if (!connected) return ["warn", "The server of this page does not answer. Trying again."];
    if (fleet.state === "lost") return ["bad", "The orchestrator ended without a word. The next start settles what it left; this page waits for it."];
    if (fleet.state === "ended") {
      const reason = shot?.ended?.reason || "";
      return [endTone(), `The run has ended: ${safe(REASONS[reason] ?? reason)}. This page goes on with the next one${servedUntil()}.`];
    }
    if (fleet.state === "none") return ["still", "No fleet has run here yet. This page shows the first one."];
    if (shot?.state === "waiting") return ["still", `Waiting: the first attempt begins at ${moment(shot.hours.begins_at)}.`];
    if (shot?.state === "draining") return ["warn", `Draining (${safe(REASONS[shot.state_reason] ?? shot.state_reason)}): what runs may finish, nothing new begins.`];
    if (shot?.state_reason && shot.state !== "running") return ["warn", `${shot.state}: ${safe(REASONS[shot.state_reason] ?? shot.state_reason)}`];
    return null;
  };

  // --- title, icon, notifications: also of a page in the background ----------------------------
  const summed = ({ queue: q }) => ({ done: q.closed, all: q.total, person: q.quarantined + q.questions + q.awaiting_approval + q.occupied });
  const TONES = { bad: "#a83a08", warn: "#b07800", live: "#1f5d99", good: "#3f7d3f" };
  const toneOf = (told) => {
    if (told.fleet === "lost") return "bad";
    if (summed(told).person) return "warn";
    return told.fleet === "ended" ? ([0, 7].includes(told.ended?.exit_code ?? 0) ? "good" : "bad") : "live";
  };
  const drawTitle = (told) => {
    const { done, all, person } = summed(told);
    const state = told.fleet === "live" ? "" : told.fleet === "lost" ? " gone" : " ended";
    document.title = `${done}/${all}${person ? ` (${person}!)` : ""}${state} ${safe((told.project || "").split("/").pop() || "beads-workers")}`;
    const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${TONES[toneOf(told)]}"/></svg>`;
    const link = document.querySelector("link[rel=icon]");
    if (link.said !== icon) { link.said = icon; link.href = `data:image/svg+xml,${encodeURIComponent(icon)}`; }
    tellPerson(told);
  };
  let lastTold = null; // what the person was told last: [run, how many wait, whether it is over]
  const tellPerson = (told) => {
    const now = [told.run_id, summed(told).person, isOver(told.fleet)];
    const before = lastTold;
    lastTold = now;
    if (!before || !window.Notification || Notification.permission !== "granted" || !document.hidden) return;
    const more = now[1] - (before[0] === now[0] ? before[1] : 0);
    const texts = [more > 0 && `${counted(more, "issue needs", "issues need")} you`, now[2] && !(before[2] && before[0] === now[0]) && (told.fleet === "lost" ? "the orchestrator is gone" : "the run has ended")].filter(Boolean);
    if (texts.length) try { new Notification(document.title, { body: texts.join("; "), tag: told.run_id }).onclick = () => focus(); } catch { byId("notify").hidden = true; }
  };
  const offerNotices = () => { byId("notify").hidden = !window.Notification || Notification.permission !== "default"; };
  byId("notify").addEventListener("click", async () => { await Notification.requestPermission(); offerNotices(); });
  const BRIEF_MS = 15000;
  setInterval(async () => {
    if (!document.hidden) return;
    try {
      const answer = await fetch("brief", { cache: "no-store" });
      const told = answer.ok ? await answer.json() : null;
      if (document.hidden && told?.queue) drawTitle(told);
    } catch { /* The server is away: what stands in the title stays until somebody looks. */ }
  }, BRIEF_MS);

  const drawHead = () => {
    const [text, className] = stateNow();
    set(byId("state"), text);
    setClass(byId("state"), className);
    const banner = bannerNow();
    byId("banner").hidden = banner === null;
    if (banner) { setClass(byId("banner"), banner[0]); set(byId("banner"), banner[1]); }
    if (!shot) return;
    set(byId("project"), project());
    const since = beganAt === null ? "" : `, since ${moment(beganAt)}`;
    set(byId("facts"), `${ends() ? `${ends()} · ` : ""}${safe(shot.source)} · ${counted(shot.workers.length, "worker")} · ${running(shot.uptime_seconds + age())}${since}`);
    set(byId("run"), `run ${safe(shot.run_id)}`);
    drawTitle({ ...shot, fleet: fleet.state });
    const on = hello.control && isLive();
    document.body.toggleAttribute("data-controls", decides());
    byId("controls").hidden = !on;
    if (on) {
      set(byId("pause"), shot.state === "paused" ? "Resume" : shot.state === "waiting" ? "Begin now" : "Pause");
      set(byId("count"), counted(own(), "worker"));
    }
  };

  const left = () => shot.queue.total - shot.queue.closed;
  const undecided = () => shot.queue.questions + shot.queue.awaiting_approval + shot.queue.occupied;
  // When all that is known is done at this rate, in seconds since the epoch.
  const doneAt = () => (beganAt === null ? Date.now() / 1000 - age() : beganAt / 1000 + shot.uptime_seconds) + Math.max(shot.eta_seconds, age());
  const ends = () => (left() && shot.eta_seconds && isLive() ? `done about ${timeOf(doneAt())}` : "");
  // Nobody knows what is to do before the tracker has answered once.
  const isUnasked = () => isLive() && shot.source_calls.now && !shot.source_calls.count;
  const own = () => shot.workers.filter((worker) => worker.own).length;

  // A budget stands beside what it counts: dollars or tokens.
  const used = (money) => {
    const budget = money.budget ? `of ${safe(money.budget)}` : "";
    const all = tokens(money.tokens.total);
    const { night } = money;
    if (night.runs > 1 && !budget.endsWith("/run")) {
      const inTokens = budget && !budget.startsWith("of $");
      return `${all}; ${inTokens ? tokens(night.tokens) : dollars(night.spent_usd)} ${budget} in ${counted(night.runs, "run")} of this night`;
    }
    return budget.startsWith("of $") ? `${budget}, ${all}` : `${all} ${budget}`.trim();
  };

  const tiles = () => {
    const { queue: q, totals: t, landing, money } = shot;
    const busy = shot.workers.filter((worker) => worker.issue_id !== null).length;
    const over = isOver(); // The last rate says nothing any more.
    const found = [
      ["closed", count(q.closed), q.unclosed ? `${count(q.unclosed)} still to be closed` : q.closed ? "in the tracker" : "none yet", ""],
      ["left", count(left()) + (q.ready_more ? "+" : ""), !left() ? (isUnasked() ? "not listed yet" : "nothing to do") : ends() || (undecided() ? counted(undecided(), "waits for you", "wait for you") : q.blocked ? `${count(q.blocked)} blocked` : "ready or running"), ""],
      ["working", `${count(busy)}`, shot.workers.length ? `of ${counted(shot.workers.length, "worker")}` : "everyone has left", ""],
      ["a minute", perMinute(over ? (60 * t.done) / Math.max(1, shot.uptime_seconds) : shot.rate_per_minute), over ? "closed, in the whole run" : "closed", ""],
      ["failed", count(t.failed), t.retried ? `${count(t.retried)} tried again` : "attempts", t.failed ? "warn" : ""],
      ["quarantined", count(q.quarantined), q.quarantined ? (q.quarantined === 1 ? "needs a person" : "need a person") : "none needs a person", q.quarantined ? "bad" : ""],
    ];
    if (landing) found.splice(1, 0, ["landed", count(landing.landed), q.waiting_to_land ? `${count(q.waiting_to_land)} to land` : "nothing waits", ""]);
    if (money) found.push(["agents cost", dollars(money.spent_usd), used(money), ""]);
    return found;
  };

  const drawTiles = () => {
    keyed(byId("tiles"), tiles(), (tile) => tile[0], (tile) => {
      const spark = tile[0] === "a minute" ? svg("svg", { class: "spark", viewBox: "0 0 60 24", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", {})) : null;
      return el("div", "", el("dt", "", tile[0]), el("dd", "big"), el("dd", "dim"), spark);
    }, (row, [name, value, said, tone]) => {
      set(row.children[1], value);
      setClass(row.children[1], tone === "bad" ? "big bad" : "big");
      set(row.children[2], said);
      if (name === "a minute") row.querySelector("path").setAttribute("d", course(shot.throughput.done));
    });
  };
  const course = (values) => {
    const shown = values.slice(-40);
    const most = Math.max(1, ...shown);
    const step = 60 / Math.max(1, shown.length - 1);
    return shown.length < 2 ? "" : shown.map((v, n) => `${n ? "L" : "M"}${(n * step).toFixed(1)} ${(23 - 22 * v / most).toFixed(1)}`).join("");
  };

  const drawIssues = () => {
    const { queue: q } = shot;
    const parts = [
      ["success", q.closed, "closed"], ["retry", q.waiting_to_land + q.in_review + q.unclosed, "to land, in review or to close"], ["running", q.running, "running"], ["timeout", q.retrying, "waiting for another try"],
      ["cancelled", q.ready + q.settling, "ready"], ["cut_off", q.blocked, "blocked"], ["lost", q.on_hold, "on hold"], ["question", undecided(), "waiting for you"], ["error", q.quarantined, "quarantined"],
    ];
    const whole = parts.reduce((sum, part) => sum + part[1], 0) || 1;
    let at = 0;
    keyed(byId("bar"), parts, (part) => part[0], ([name]) => svg("rect", { class: `o-${name}`, height: 18 }), (rect, [, n]) => {
      rect.setAttribute("x", `${(100 * at) / whole}%`);
      rect.setAttribute("width", `${(100 * n) / whole}%`);
      at += n;
    });
    keyed(byId("legend"), parts.filter((part) => part[1]), (part) => part[0], ([name, , word]) => el("li", "", swatch(name), el("b"), ` ${word}`),
      (row, [, n]) => set(row.querySelector("b"), count(n)));
    const [kinds, next] = [q.by_priority, q.next_retry_seconds];
    set(byId("issues-note"), [q.ready && kinds.some(Boolean) ? `ready by priority ${kinds.join(" · ")}` : "", next !== null && isLive() ? `next try in ${roughly(Math.max(0, next - age()))}` : ""].filter(Boolean).join(", "));
  };

  // What can be typed as it stands; the terminal has no room for the program's name.
  const OURS = /^(answer|approve|diff|doctor|logs|release|resume|retry|start|why)(?= |$)/;

  // What the page does itself, with a button: no phone can type it.
  const TAPPED = /^(logs (?!W\d+$)|retry )/;

  // A button that opens an attempt; "pin" tells which when it is pressed.
  const opener = (pin, ...children) => {
    const button = el("button", "opens", ...children);
    button.type = "button";
    button.addEventListener("click", () => read(pin(), button));
    return button;
  };

  // What a card with buttons asks for is not said above it as well.
  const hasCard = (need) => hello.control && [...shot.questions, ...shot.approvals].some((row) => need.text.startsWith(`${row.issue_id} a`) && need.remedy.endsWith(` ${row.issue_id}`));
  const drawNeeds = () => {
    const needs = shot.needs.filter((need) => !hasCard(need));
    if (isOver() && shot.landing?.merge) needs.push({ text: "what has landed is not in your branch yet", remedy: shot.landing.merge, merge: true });
    byId("needs").hidden = !needs.length;
    keyed(byId("needs").querySelector("ul"), needs, (need) => need.text + "\n" + need.remedy, (need) => {
      const typed = need.remedy.split("; ").map((one) => one.trim()).filter(Boolean);
      const about = typed.map((one) => /^(?:answer|approve|diff|logs|why) (\S+)$/.exec(one)?.[1]).find((id) => id && !/^W\d+$/.test(id)) ?? /^(\S+) waits: /.exec(need.text)?.[1];
      const code = (one) => foreign(OURS.test(one) ? `beads-workers ${one}` : one, "code", TAPPED.test(one) ? "tapped" : "");
      const merge = el("button", "merge", "Merge");
      merge.addEventListener("click", () => ask("bw.merge", {}, `${safe(shot.landing.merge)}?`));
      const below = el("button", "below", "See them all");
      below.addEventListener("click", () => byId("quarantined").scrollIntoView());
      return el("li", "", foreign(need.text, "span"), ...typed.map(code), about ? opener(() => pinIssue(about), el("span", "", `Open ${safe(about)}`)) : null, typed.some((one) => /^retry .+ .|^retry --all/.test(one)) ? below : null, need.merge && decides() ? merge : null);
    });
  };

  // --- what a person decides -------------------------------------------------------------------
  const TEXT_MAX = 10000; // of six bytes at most: a request has room for them
  const drafts = new Map(); // what is typed and not sent, also while its card is away

  const words = (about, label) => {
    const box = el("textarea");
    box.rows = 1;
    box.placeholder = label.split(" ")[0];
    box.setAttribute("aria-label", label);
    box.about = about;
    box.value = drafts.get(about) ?? "";
    box.addEventListener("input", () => drafts.set(about, box.value));
    return box;
  };
  const send = async (box, control, issue, missing) => {
    const text = box.value.trim();
    const beside = control === "bw.reject" ? commentsOn(issue) : [];
    if ((!text && !beside.length) || text.length > TEXT_MAX) {
      say(text ? `At most ${count(TEXT_MAX)} characters can be sent.` : missing, true);
      box.focus();
      return;
    }
    box.readOnly = true;
    draw();
    if (await tell(control, { issue_ids: [issue], text, ...(beside.length ? { comments: beside } : {}) })) {
      if (beside.length) comments.delete(issue);
      box.value = "";
      drafts.delete(box.about);
    }
    box.readOnly = false;
    draw();
  };
  // Comments on lines of a diff, by issue; ui/line_comments.py makes one text of them.
  const comments = new Map();
  const commentsOn = (issue) => comments.get(issue) ?? [];
  // A branch is approved as it was seen: issue -> the commit whose diff was opened.
  const looked = new Map();
  const unseen = (row) => looked.get(row.issue_id) !== row.commit;
  const askApproval = (row) => ask("bw.approve", { commits: { [row.issue_id]: row.commit } }, `Land ${safe(row.issue_id)} (${safe(row.title)}) at ${short(row.commit)}?`);
  // A box stays where a fleet is away for a moment: somebody may be typing.
  const drawForm = (card) => {
    const form = card.lastElementChild;
    form.hidden = !hello.control;
    for (const button of form.querySelectorAll("button")) button.disabled = !decides() || form.querySelector("textarea").readOnly || (button.className === "approve" && unseen(card.shown));
  };
  const drawCards = (section, rows, whole, key, make, update) => {
    section.hidden = !rows.length;
    set(section.querySelector("small"), count(whole) + (whole > rows.length ? `; the first ${count(rows.length)} of them` : ""));
    keyed(section.querySelector("ul"), rows, key, make, (card, row) => { update(card, row); drawForm(card); });
  };

  const choices = (row) => [...row.question.matchAll(/^[ \t]*(\d+)\. (.*)$/gm)].map(([, number, text]) => {
    const choice = el("button", "choice", safe(`${number}. ${text}`.slice(0, 80)));
    choice.addEventListener("click", () => tell("bw.answer", { issue_ids: [row.issue_id], text: number }));
    return choice;
  });
  const drawQuestions = () => {
    const key = (row) => `${row.issue_id}\0${row.asked_at}`;
    drawCards(byId("asking"), shot.questions, shot.queue.questions, key, (row) => {
      const box = words(key(row), `Answer to ${safe(row.issue_id)}`);
      const reply = el("button", "reply", "Answer");
      reply.addEventListener("click", () => send(box, "bw.answer", row.issue_id, "Type the answer first."));
      return el("li", "", el("p", "", opener(() => pinIssue(row.issue_id), foreign(row.issue_id, "code"), " ", foreign(row.title)), el("span", "dim")),
        el("pre", "", el("bdi", "", inLines(row.question))), el("div", "form", ...choices(row), box, reply));
    }, (card, row) => {
      set(card.querySelector(".dim"), [row.agent && ` ${safe(row.agent)}`, row.branch && ` on ${safe(row.branch)}`].filter(Boolean).join(""));
    });
  };

  const drawApprovals = () => {
    drawCards(byId("awaiting"), shot.approvals, shot.queue.awaiting_approval, (row) => row.issue_id, (row) => {
      const box = words(row.issue_id, `Remarks on ${safe(row.issue_id)}`);
      const [diff, approve, reject] = [el("button", "diff", "Diff"), el("button", "approve", "Approve"), el("button", "reject", "Reject")];
      const card = el("li", "", el("p", "", opener(() => pinIssue(row.issue_id), foreign(row.issue_id, "code"), " ", foreign(row.title))), el("pre"), el("pre", "said"), el("p", "dim"), el("div", "form", box, diff, approve, reject));
      diff.addEventListener("click", () => { tab = "diff"; read(pinIssue(row.issue_id), diff); });
      approve.title = "once you have opened its diff";
      approve.addEventListener("click", () => askApproval(card.shown));
      reject.addEventListener("click", () => send(box, "bw.reject", row.issue_id, "Type what is wrong first: its agent reads it."));
      return card;
    }, (card, row) => {
      card.shown = row;
      set(card.querySelector("pre"), inLines(row.diffstat || "no figures of its changes"));
      const said = card.querySelector(".said");
      set(said, inLines(row.message));
      said.hidden = !row.message;
      const by = row.agent ? ` by ${safe(row.agent)}` : "";
      const more = commentsOn(row.issue_id).length;
      set(card.querySelector(".reject"), more ? `Reject with ${counted(more, "comment")}` : "Reject");
      set(card.querySelector(".dim"), `${short(row.commit)} on ${safe(row.branch)}${by}, ${row.gate ? safe(row.gate.text) : row.verified ? "verified" : "not verified"}`);
    });
  };
  const short = (commit) => safe(commit).slice(0, 12);

  // --- workers, and what ended -----------------------------------------------------------------
  const drawWorkers = () => {
    byId("fleet").hidden = !shot.workers.length && !isLive();
    keyed(byId("workers"), shot.workers, (worker) => worker.worker_id, (worker) => {
      const row = el("button", "row", foreign(worker.worker_id, "span", "who"), el("span", "what"), el("span", "clock"), el("span", "does"));
      row.type = "button";
      row.addEventListener("click", () => {
        const now = shot.workers.find((each) => each.worker_id === worker.worker_id);
        read(open?.worker === worker.worker_id ? null : now && pinWorker(now), row);
      });
      return el("li", "", row);
    }, drawWorker);
    const busy = shot.workers.filter((worker) => worker.issue_id !== null).length;
    set(byId("workers-note"), shot.workers.length ? `${count(busy)} of ${count(shot.workers.length)} at work; choose one to open its attempt` : "none yet");
  };

  const drawWorker = (item, worker) => {
    const row = item.firstElementChild;
    const [, what, time, does] = row.children;
    row.setAttribute("aria-pressed", String(open !== null && open.worker === worker.worker_id && open.issue === worker.issue_id));
    setClass(item, worker.issue_id === null ? "idle" : "busy");
    const paused = worker.paused !== null && worker.paused !== undefined;
    const state = paused ? "paused" : worker.state;
    const named = worker.issue_id === null ? `\0${state}` : `${worker.issue_id}\0${worker.title}\0${worker.attempt}\0${paused}`;
    if (what.said !== named) {
      what.said = named;
      if (worker.issue_id === null) what.replaceChildren(el("span", "none", worker.own ? state : `${state}, not started by this fleet`));
      else what.replaceChildren(foreign(worker.issue_id, "code"), " ", foreign(worker.title), worker.attempt > 1 ? el("span", "try", ` attempt ${worker.attempt}`) : "", paused ? el("span", "try", " paused") : "");
    }
    set(time, worker.elapsed_seconds === null ? `${count(worker.done)} done` : running(worker.elapsed_seconds + age()));
    drawActivity(does, worker);
  };

  const drawActivity = (does, worker) => {
    const said = worker.progress;
    const spent = [worker.tokens ? tokens(worker.tokens) : "", worker.money_usd ? dollars(worker.money_usd) : ""].filter(Boolean).join(", ");
    const percent = said?.percent ?? null;
    const place = (shot.places ?? []).find((each) => each.name === worker.place);
    const host = place?.hosts.find((each) => each.name === worker.host && each.why);
    const cut = host ? ` (cut off, works on until ${timeOf(host.since + place.lease_seconds)})` : "";
    const there = worker.host ? `on ${worker.host}${cut}` : "";
    const text = worker.issue_id === null ? "" : [there, worker.escalated || worker.agent || "", worker.activity || ""].filter(Boolean).join(": ");
    const told = `${percent}\0${text}\0${spent}\0${worker.failed}`;
    if (does.said === told) return;
    does.said = told;
    does.replaceChildren();
    if (percent !== null && worker.issue_id !== null) {
      const meter = el("meter");
      [meter.min, meter.max, meter.value] = [0, 100, percent];
      does.append(meter, el("span", "", `${percent}%`));
    }
    if (text) does.append(foreign(text));
    if (spent && worker.issue_id !== null) does.append(el("span", "", spent));
  };

  const outcomeOf = (end) => (end.outcome in WORDS ? end.outcome : "error");
  const timeOf = (at) => new Date(1000 * at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const drawEnded = () => {
    const key = (end) => `${end.at} ${end.issue_id} ${end.attempt}`;
    keyed(byId("ended"), [...shot.outcomes].reverse(), key, (end) => el("li", "", swatch(outcomeOf(end)),
      opener(() => pinEnd(end), el("span", "what", foreign(end.issue_id, "code"), " ", foreign(end.title))),
      el("span", "clock", `${timeOf(end.at)}, ${safe(end.worker_id)}, ${duration(end.seconds)}`), foreign(end.became, "span", FAULTS.has(end.outcome) ? "why bad" : "why")));
    if (!shot.outcomes.length) keyed(byId("ended"), [0], String, () => el("li", "none", el("span"), el("span", "", "nothing has ended yet")));
  };

  // --- landing, quarantine, money, notes -------------------------------------------------------
  const drawLanding = () => {
    const landing = shot.landing;
    byId("landing").hidden = !landing;
    if (!landing) return;
    const gates = landing.gates;
    set(byId("landing-note"), `${count(landing.landed)} on ${safe(landing.branch)}; gates: ${count(gates.green)} green, ${count(gates.red)} red`);
    const lanes = new Map(landing.running.flatMap((lane) => lane.issues.map((id) => [id, lane])));
    const lined = [...landing.waiting_to_land, ...landing.in_review].slice(0, 50);
    keyed(byId("waiting"), lined.length ? lined : [null], (row) => row?.issue_id ?? "", (row) => row === null
      ? el("li", "none", "nothing waits to land")
      : el("li", "", opener(() => pinIssue(row.issue_id), foreign(row.issue_id, "code"), " ", foreign(row.title)), el("span", "try")), (item, row) => {
      const lane = row && lanes.get(row.issue_id);
      if (row) set(item.lastElementChild, lane ? ` in the gate for ${running(lane.seconds + age())}` : row.url ? ` in review: ${safe(row.text)}` : "");
    });
    const ends = [...landing.last].reverse();
    keyed(byId("landed"), ends.length ? ends : [null], (row) => (row ? `${row.at} ${row.issue_id}` : ""), (row) => row === null
      ? el("li", "none", "nothing has landed yet")
      : el("li", "", swatch(row.verdict === "landed" ? "success" : "error"), opener(() => pinIssue(row.issue_id), foreign(row.issue_id, "code"), " ",
        row.verdict === "landed" ? foreign(row.title) : foreign(`${row.verdict}: ${row.error}`, "span", "bad"))));
  };

  // By cause: fifty issues that fail alike are one thing to look at.
  const drawQuarantined = () => {
    const rows = new Map(shot.quarantined.map((row) => [row.issue_id, row]));
    const causes = shot.causes ?? [{ text: "", issue_ids: [...rows.keys()] }];
    byId("quarantined").hidden = !rows.size;
    const on = decides();
    byId("retry-all").hidden = !on || rows.size < 2;
    const all = shot.queue.quarantined;
    set(byId("quarantined-note"), `${count(all)} out of the backlog until somebody asks for another try${all > rows.size ? `; the newest ${count(rows.size)} are shown` : ""}`);
    keyed(byId("aside"), causes, (cause) => cause.text, (cause) => {
      const againAll = el("button", "again-all", "Try these again");
      const list = el("ul");
      const card = el("li", "", el("p", "", el("b"), " ", foreign(cause.text || "no error was given", "span", "bad"), againAll), el("details", "", el("summary"), list));
      againAll.addEventListener("click", () => askAgain(card.shown.issue_ids));
      return card;
    }, (card, cause) => {
      card.shown = cause;
      const [head, folded] = card.children;
      set(head.firstElementChild, cause.issue_ids.length > 1 ? `${count(cause.issue_ids.length)} x` : "");
      head.querySelector("button").hidden = !on || cause.issue_ids.length < 2;
      set(folded.firstElementChild, counted(cause.issue_ids.length, "issue"));
      folded.firstElementChild.hidden = cause.issue_ids.length === 1;
      if (folded.drawn === undefined) folded.open = folded.drawn = causes.length < 9 && cause.issue_ids.length < 9;
      const shown = cause.issue_ids.map((id) => rows.get(id)).filter(Boolean);
      keyed(folded.lastElementChild, shown, (row) => `${row.issue_id}\0${row.attempts}\0${row.error}`, (row) => {
        const [again, needless] = [el("button", "again", "Try again"), el("button", "needless", "Not needed")];
        again.addEventListener("click", () => tell("bw.retry", { issue_ids: [row.issue_id] }));
        needless.addEventListener("click", () => ask("bw.close", { issue_ids: [row.issue_id] }, `Close ${safe(row.issue_id)} (${safe(row.title)}) as not needed?`));
        return el("li", "", opener(() => pinIssue(row.issue_id), foreign(row.issue_id, "code"), " ", foreign(row.title ?? "")), el("span", "dim", ` ${row.attempts ? counted(row.attempts, "attempt") : "did not land"}`), again, needless,
          row.error && row.error !== cause.text ? foreign(row.error, "pre") : null);
      }, (item) => {
        item.querySelector(".again").hidden = !on;
        item.querySelector(".needless").hidden = !on || !isOver();
      });
    });
  };
  const askAgain = (ids) => ask("bw.retry", { issue_ids: ids }, `Try ${counted(ids.length, "quarantined issue")} again?`);

  const drawMoney = () => {
    const { money, accounts } = shot;
    byId("money").hidden = !money;
    if (!money) return;
    const beside = used(money);
    set(byId("money-note"), `${dollars(money.spent_usd)}${beside.startsWith("of ") ? "" : ","} ${beside}`);
    byId("spent").hidden = !Object.keys(money.by_agent).length;
    keyed(byId("spent"), Object.entries(money.by_agent), (row) => row[0], ([name]) => el("div", "", foreign(name, "dt"), el("dd")),
      (row, [, spent]) => set(row.lastElementChild, `${dollars(spent.usd)}, ${tokens(spent.tokens)}`));
    keyed(byId("accounts"), accounts, (account) => `${account.agent} ${account.model}`, (account) => el("li", "", foreign(account.agent, "b"), " ", el("span"), " ", el("code")),
      (row, account) => {
        const open = account.state === "available";
        const full = account.utilization === null ? "" : `, fullest limit at ${Math.round(100 * account.utilization)}%`;
        const until = account.until_seconds ? `, for ${roughly(account.until_seconds)}` : "";
        set(row.children[1], open ? `takes work${full}` : `${account.state.replace("_", " ")}: ${safe(account.reason)}${until}`);
        setClass(row.children[1], open ? "dim" : "bad");
        set(row.children[2], safe(account.remedy ?? ""));
        row.children[2].hidden = !account.remedy;
      });
  };

  const drawNotes = () => {
    const notes = shot.notes.filter((note) => note.level !== "info").reverse();
    byId("notes").hidden = !notes.length;
    keyed(byId("noted"), notes, (note) => `${note.at}\0${note.text}`, (note) => el("li", note.level === "error" ? "bad" : "",
      el("b", "", new Date(note.at * 1000).toLocaleTimeString("en-GB")), " ", foreign(note.text)));
  };

  // --- timeline --------------------------------------------------------------------------------
  // Bars lie in shares of a span of time that grows in steps: between two of them bars are only added.
  const AXIS = 24, NAMES = 58;
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const known = new WeakMap();
  let plot = null, picked = null;

  const spanNow = (until) => {
    const length = Number(document.querySelector("[name=span]:checked").value);
    if (length && until > length) {
      const step = length / 6;
      const to = Math.ceil((until + 0.01) / step) * step;
      return [to - length - step, to];
    }
    if (!length && !isLive()) return [0, Math.max(1, until)];
    const whole = length || Math.max(10, until * 1.02);
    const step = STEPS.find((each) => whole / each <= 8) || 86400;
    return [0, Math.max(length, Math.ceil(whole / step) * step)];
  };
  const order = (id) => [/^W\d+$/.test(id) ? 0 : 1, Number(id.slice(1)) || 0, id];
  const inOrder = (a, b) => {
    const [x, y] = [order(a), order(b)];
    return x[0] - y[0] || x[1] - y[1] || (x[2] < y[2] ? -1 : 1);
  };
  const share = (at) => (100 * (at - plot.from)) / (plot.to - plot.from);

  const layOut = (names, from, to) => {
    const height = names.length <= 16 ? 22 : names.length <= 40 ? 16 : 10;
    plot = { names, from, to, height, shown: 0, running: new Map(), rows: new Map(names.map((name, n) => [name, AXIS + n * height])) };
    const bottom = AXIS + names.length * height;
    const labels = names.map((name) => svg("text", { x: NAMES - 8, y: plot.rows.get(name) + height / 2, dy: "0.35em", class: "name" }, safe(name)));
    byId("timeline").firstElementChild.replaceChildren(svg("svg", { width: NAMES, height: bottom + 6, class: height < 14 ? "small" : "" }, ...labels));
    const group = height > 14 ? 1 : 5;
    const stripes = names.filter((_, n) => Math.floor(n / group) % 2).map((name) => svg("rect", { class: "stripe", y: plot.rows.get(name), width: "100%", height }));
    const places = Math.max(2, Math.min(10, byId("timeline").clientWidth / 110));
    const step = STEPS.find((each) => (to - from) / each <= places) || 86400;
    const ticks = [];
    // At whole minutes and hours of the clock on the wall, not of the run.
    const zero = beganAt === null ? 0 : (beganAt / 1000 - 60 * new Date(beganAt).getTimezoneOffset()) % step;
    for (let at = Math.ceil((from + zero) / step) * step - zero; at <= to; at += step) {
      const x = `${share(at)}%`;
      const edge = share(at) < 3 ? "at-start" : share(at) > 97 ? "at-end" : "";
      ticks.push(svg("g", { class: "tick" }, svg("line", { x1: x, x2: x, y1: AXIS - 4, y2: bottom }), svg("text", { x, y: AXIS - 9, class: edge }, wall(at, step < 60))));
    }
    plot.bars = svg("g", {});
    plot.now = svg("line", { class: "now", y1: AXIS - 4, y2: bottom });
    byId("timeline").lastElementChild.replaceChildren(svg("svg", { width: "100%", height: bottom + 6 }, ...stripes, ...ticks, plot.bars, plot.now));
    picked = null;
  };

  const bar = (attempt) => {
    const inset = plot.height > 20 ? 3 : plot.height > 14 ? 2 : 1;
    const rect = svg("rect", { class: `bar o-${attempt[6]}`, y: plot.rows.get(attempt[0]) + inset, height: plot.height - 2 * inset, rx: 1.5 });
    plot.bars.append(rect);
    stretch(rect, attempt);
    return rect;
  };
  const stretch = (rect, attempt) => {
    const from = Math.max(attempt[4], plot.from);
    rect.setAttribute("x", `${share(from)}%`);
    rect.setAttribute("width", `${Math.max(0.12, share(attempt[5]) - share(from))}%`);
    known.set(rect, attempt);
  };

  const drawTimeline = () => {
    const until = shot.uptime_seconds + age();
    const names = [...new Set([...shot.workers.map((worker) => worker.worker_id), ...last.keys()])].sort(inOrder);
    const [from, to] = spanNow(until);
    if (!plot || plot.from !== from || plot.to !== to || plot.names.join() !== names.join()) layOut(names, from, to);
    for (const attempt of attempts.slice(plot.shown)) if (attempt[5] > from) bar(attempt);
    plot.shown = attempts.length;
    while (plot.bars.childElementCount > BARS_MAX + plot.running.size) plot.bars.firstElementChild.remove();
    drawRunning(until);
    for (const name of ["x1", "x2"]) plot.now.setAttribute(name, `${share(until)}%`);
    plot.now.style.display = isLive() ? "" : "none";
    drawOutcomes();
  };

  const drawRunning = (until) => {
    const seen = new Set();
    for (const worker of shot.workers) {
      if (worker.issue_id === null) continue;
      const name = `${worker.worker_id}\0${worker.issue_id}\0${worker.attempt}`;
      // The journal, which tells of ends, may be ahead of the snapshot.
      const began = shot.uptime_seconds - worker.elapsed_seconds;
      const before = last.get(worker.worker_id);
      if (before && before[1] === worker.issue_id && before[3] === worker.attempt && before[4] > began - 0.5) continue;
      seen.add(name);
      const attempt = [worker.worker_id, worker.issue_id, worker.title, worker.attempt, began, until, "running"];
      const rect = plot.running.get(name);
      if (rect) stretch(rect, attempt);
      else plot.running.set(name, bar(attempt));
    }
    for (const [name, rect] of plot.running) if (!seen.has(name)) { rect.remove(); plot.running.delete(name); }
  };

  const drawOutcomes = () => {
    set(byId("time-note"), dropped ? `the last ${counted(attempts.length, "attempt")}` : "a row for each worker, a bar for each attempt");
    const rows = Object.keys(WORDS).filter((outcome) => counts.has(outcome));
    keyed(byId("outcomes"), rows, String, (outcome) => el("li", "", swatch(outcome), el("b"), ` ${WORDS[outcome]}`),
      (row, outcome) => set(row.querySelector("b"), count(counts.get(outcome))));
  };

  const describe = (rect) => {
    const attempt = rect && known.get(rect);
    if (!attempt) {
      byId("detail").replaceChildren("Point at a bar, or tap it; by keyboard, the arrows choose one.");
      return;
    }
    const [worker, issue, title, number, began, ended, outcome] = attempt;
    byId("detail").replaceChildren(foreign(issue, "code"), " ", foreign(title), ` · attempt ${number} on ${safe(worker)}, ${WORDS[outcome]}, began ${wall(began)}, ${duration(ended - began)} `,
      opener(() => pinBar(attempt), "Open"));
  };
  const barAt = (event) => event.target.closest?.("rect.bar") ?? null;
  const pick = (rect) => {
    picked?.classList.remove("picked");
    picked = rect;
    picked?.classList.add("picked");
    describe(picked);
  };
  byId("timeline").addEventListener("pointerover", (event) => { if (barAt(event)) describe(barAt(event)); });
  byId("timeline").addEventListener("pointerleave", () => { if (picked) describe(picked); });
  byId("timeline").addEventListener("click", (event) => { if (barAt(event)) pick(barAt(event)); });
  // Left and right: along a worker's row. Up and down: to the bar of another worker at that time.
  const beside = (key) => {
    const bars = [...plot.bars.children].map((rect) => [rect, known.get(rect)]);
    if (!picked || !bars.length) return bars.at(-1)?.[0] ?? null;
    const [worker, , , , began] = known.get(picked);
    const nearest = (found, away) => found.reduce((best, each) => (best === null || away(each) < away(best) ? each : best), null)?.[0] ?? picked;
    if (key === "ArrowLeft") return nearest(bars.filter(([, one]) => one[0] === worker && one[4] < began), ([, one]) => began - one[4]);
    if (key === "ArrowRight") return nearest(bars.filter(([, one]) => one[0] === worker && one[4] > began), ([, one]) => one[4] - began);
    const by = key === "ArrowUp" ? -1 : 1;
    for (let at = plot.names.indexOf(worker) + by; at >= 0 && at < plot.names.length; at += by) {
      const row = bars.filter(([, one]) => one[0] === plot.names[at]);
      if (row.length) return nearest(row, ([, one]) => Math.abs(one[4] - began));
    }
    return picked;
  };
  byId("timeline").addEventListener("keydown", (event) => {
    if (/^Arrow/.test(event.key)) { event.preventDefault(); pick(beside(event.key)); picked?.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    if (event.key === "Enter" && picked) read(pinBar(known.get(picked)), byId("timeline"));
  });
  for (const choice of document.querySelectorAll("[name=span]")) choice.addEventListener("change", () => draw());

  // {web_attempt.js}

  // --- control ---------------------------------------------------------------------------------
  let wish = null; // what a yes stands for
  const YES = { "bw.approve": "Land it", "bw.close": "Close it", "bw.merge": "Merge", "bw.retry": "Try again", "bw.release": "Release", "bw.stop": "Stop" };
  const ask = (control, fields, question) => {
    wish = () => tell(control, fields);
    set(byId("asked"), question);
    set(byId("yes"), YES[control]);
    setClass(byId("yes"), ["bw.release", "bw.stop"].includes(control) ? "danger" : "");
    byId("question").showModal();
  };
  // Not upon "close", which comes later: the next question may be open by then.
  byId("question").addEventListener("submit", (event) => { if (event.submitter === byId("yes")) wish(); });
  const tell = async (control, fields) => {
    let told = { error: "the server of this page does not answer" };
    try {
      const answer = await fetch("control", {
        method: "POST", headers: { "Content-Type": "application/json", "X-Beads-Workers-Token": token }, body: JSON.stringify({ control, fields }),
      });
      told = await answer.json();
    } catch { /* Said below. */ }
    say(told.error || told.text || "done", Boolean(told.error));
    return !told.error;
  };
  const say = (text, failed) => {
    const line = byId("answer");
    set(line, safe(text));
    setClass(line, failed ? "bad" : "");
    line.hidden = false;
    clearTimeout(line.until);
    line.until = setTimeout(() => { line.hidden = true; }, 8000);
  };
  // One question for what cannot be undone, and none for what can.
  byId("pause").addEventListener("click", () => tell(["paused", "waiting"].includes(shot.state) ? "bw.resume" : "bw.pause", {}));
  byId("more").addEventListener("click", () => tell("bw.scale", { workers: 1, relative: true }));
  byId("fewer").addEventListener("click", () => tell("bw.scale", { workers: -1, relative: true }));
  const runs = () => (shot.queue.running ? counted(shot.queue.running, "running task") : "");
  byId("drain").addEventListener("click", () => ask("bw.stop", { drain: true }, runs() ? `Stop the fleet once ${runs()} ${shot.queue.running === 1 ? "has" : "have"} ended? Nothing new begins.` : "Stop the fleet? Nothing runs."));
  byId("stop").addEventListener("click", () => ask("bw.stop", {}, `Stop the fleet? ${runs() ? `${runs()} will be ended and requeued.` : "Nothing runs."}`));
  byId("retry-all").addEventListener("click", () => askAgain(shot.quarantined.map((row) => row.issue_id)));

  // --- drawing ---------------------------------------------------------------------------------
  const SECTIONS = [drawTiles, drawIssues, drawNeeds, drawQuestions, drawApprovals, drawEnded, drawWorkers, drawLanding, drawQuarantined, drawTimeline, drawMoney, drawNotes];
  const draw = () => {
    drawHead();
    document.body.classList.toggle("empty", !shot);
    if (shot) for (const section of SECTIONS) section();
    drawPanel();
  };
  let due = false;
  const soon = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  };
  setInterval(() => { if (isLive() && !document.hidden) soon(); }, 1000);

  // New ones, or all that are kept where this page has none of them, or too few.
  const add = (told) => {
    if (told.anew) [attempts, last, counts, plot] = [[], new Map(), new Map(), null];
    dropped = told.dropped;
    for (const attempt of told.rows) {
      attempts.push(attempt);
      last.set(attempt[0], attempt);
      counts.set(attempt[6], (counts.get(attempt[6]) || 0) + 1);
    }
  };

  // Whether somebody reads the end of a run: its server then goes on for a while only.
  let seenOf = "";
  const seen = () => {
    if (!connected || !shot || !isOver() || seenOf === shot.run_id) return;
    seenOf = shot.run_id;
    fetch("seen", { cache: "no-store" }).catch(() => { seenOf = ""; });
  };
  for (const each of ["pointerdown", "pointermove", "keydown", "wheel", "scroll"]) addEventListener(each, seen, { passive: true });

  // --- snapshots -------------------------------------------------------------------------------
  // A change, as ui/web_deltas.py makes it: [0, value], [1, op, ...] for a list, or an object of changes.
  let sent = null;
  const patched = (old, change) => {
    if (Array.isArray(change)) return change[0] ? change.slice(1).flatMap((op) => moved(old, op)) : change[1];
    const now = { ...old };
    for (const [key, each] of Object.entries(change)) {
      if (each === 0) delete now[key];
      else now[key] = patched(old[key], each);
    }
    return now;
  };
  const moved = (old, [at, how]) => {
    if (how === undefined) return [at]; // A new item.
    return typeof how === "number" ? old.slice(at, at + how) : [patched(old[at], how)];
  };
  // Moments of the run become durations again, as in "status --json".
  const timed = (value, now) => {
    if (Array.isArray(value)) return value.map((each) => timed(each, now));
    if (value === null || typeof value !== "object") return value;
    if (value.run_since !== undefined) return now - value.run_since;
    if (value.run_until !== undefined) return value.run_until - now;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, timed(each, now)]));
  };
  const TIMED = ["workers", "landing", "accounts", "queue", "hours"];
  const take = (told) => {
    shot = { ...told };
    for (const key of TIMED) if (told[key]) shot[key] = timed(told[key], told.uptime_seconds);
    shotAt = performance.now();
  };

  // --- the stream ------------------------------------------------------------------------------
  // A page that nobody sees has no stream: a browser gives one site only six connections.
  let stream = null, again = 0;
  const heard = (name, take) => stream.addEventListener(name, (event) => { take(JSON.parse(event.data)); soon(); });
  const connect = () => {
    stream?.close();
    stream = new EventSource("events");
    stream.onopen = () => { connected = true; soon(); };
    stream.onerror = () => { leave(); again = setTimeout(resume, 300); };
    heard("hello", (told) => { hello = told; });
    heard("fleet", (told) => { fleet = told; });
    heard("snapshot", (told) => { sent = told; take(sent); });
    heard("change", (told) => { sent = patched(sent, told); take(sent); });
    heard("attempts", add);
    heard("clock", (told) => { beganAt = 1000 * told.began_at; plot = null; });
  };
  const leave = () => {
    clearTimeout(again);
    stream?.close();
    connected = false;
    soon();
  };
  // Whoever holds the port now may be a stranger: only a server that proves to know the key is believed, and gets a proof.
  const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const proof = async (who, nonce, challenge) => {
    const text = new TextEncoder();
    const secret = await crypto.subtle.importKey("raw", text.encode(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    return hex(await crypto.subtle.sign("HMAC", secret, text.encode(`${who} ${port} ${nonce} ${challenge}`)));
  };
  const told = async (query) => {
    const answer = await fetch(`/resume?${new URLSearchParams(query)}`, { cache: "no-store", credentials: "omit", redirect: "error" });
    return answer.ok ? answer.json() : {};
  };
  const resume = async () => {
    try {
      const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
      const server = await told({ nonce });
      if (server.proof !== await proof("server", nonce, server.challenge)) throw new Error("not ours");
      const { token: next } = await told({ challenge: server.challenge, proof: await proof("page", nonce, server.challenge) });
      if (!/^[\w-]{22}$/.test(next)) throw new Error("no token");
      token = next;
      history.replaceState(null, "", `/${token}/`);
      if (!document.hidden) connect();
    } catch {
      again = setTimeout(resume, 1000);
    }
  };
  document.addEventListener("visibilitychange", () => {
    askIssues();
    leave();
    if (!document.hidden) resume();
  });
  describe(null);
  offerNotices();
  connect();
})();
