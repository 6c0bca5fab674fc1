  // What is opened on the live page: an attempt with its log, diff and all about it; the list of all
  // issues; reports. This part stands in web.js, at its mark, and shares its names.

  // --- attempt ---------------------------------------------------------------------------------
  // A pin names an attempt, as ui/attempt_view.py has it; number 0 is the newest one of the issue.
  const pinWorker = (worker) => (worker.issue_id === null ? lastOf(worker.worker_id) : {
    issue: worker.issue_id, run: shot.run_id, number: worker.attempt, worker: worker.worker_id, began: shot.uptime_seconds - worker.elapsed_seconds, title: worker.title,
  });
  const lastOf = (worker) => (last.has(worker) ? pinBar(last.get(worker)) : null);
  const pinEnd = (end) => ({ issue: end.issue_id, run: shot.run_id, number: end.attempt, worker: end.worker_id, ended: end.at, seconds: end.seconds, title: end.title });
  const pinBar = ([worker, issue, title, number, began, ended, outcome]) => ({
    issue, run: shot.run_id, number, worker, began, title, ...(outcome === "running" ? {} : { seconds: ended - began, ended: beganAt === null ? null : beganAt / 1000 + ended }),
  });
  const pinIssue = (issue) => {
    const worker = shot.workers.find((each) => each.issue_id === issue);
    const end = [...shot.outcomes].reverse().find((each) => each.issue_id === issue);
    return worker ? pinWorker(worker) : end ? pinEnd(end) : { issue, run: shot.run_id, number: 0 };
  };
  const PIN = ["issue", "run", "number", "worker", "began", "ended", "request", "seconds"];
  const query = (pin, more = {}) => new URLSearchParams(Object.entries({ ...Object.fromEntries(PIN.map((key) => [key, pin[key]])), ...more })
    .filter(([, value]) => value !== null && value !== undefined && value !== ""));
  const got = async (what, pin, more) => {
    try {
      const answer = await fetch(`${what}?${query(pin, more)}`, { cache: "no-store" });
      return answer.ok ? await answer.json() : { error: "that is not there" };
    } catch {
      return null; // The server is away: what is shown stays, and the banner says it.
    }
  };

  const TABS = ["log", "diff", "about"];
  let tab = "log";
  let found = null;    // what the server told of the attempt
  let knownOf = "";    // what the snapshot said of its issue when it was asked
  let opened = null;   // where the focus goes back to
  const read = (pin, from = null) => {
    if (pin === null && open === null) return;
    const was = open;
    [open, found, knownOf] = [pin, null, ""];
    byId("log").hidden = pin === null;
    document.body.classList.toggle("reading", pin !== null);
    if (pin === null) {
      clearTimeout(tailing);
      (opened?.isConnected ? opened : byId("project")).focus({ preventScroll: true });
      draw();
      return;
    }
    if (was === null || from) opened = from;
    for (const id of ["lines", "diff", "about", "acts"]) { byId(id).replaceChildren(); byId(id).rows = null; }
    part = null;
    byId("hits").value = "";
    choose(tab);
    draw();
    if (was === null) byId("log-title").focus({ preventScroll: true });
  };
  const choose = (name) => {
    tab = name;
    for (const each of TABS) {
      const button = byId(`tab-${each}`);
      button.setAttribute("aria-selected", String(each === name));
      button.tabIndex = each === name ? 0 : -1;
      byId(`view-${each}`).hidden = each !== name;
    }
    byId("tools").classList.toggle("away", name !== "log");
    clearTimeout(tailing);
    if (open === null) return;
    if (name === "log") tail(open);
    if (name === "diff") drawDiff(open);
    if (name === "about" && found) drawAbout();
  };
  for (const each of TABS) byId(`tab-${each}`).addEventListener("click", () => choose(each));
  document.querySelector(".tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: 2 }[event.key];
    if (!by) return;
    choose(TABS[(TABS.indexOf(tab) + by) % 3]);
    byId(`tab-${tab}`).focus();
  });

  // What the snapshot has of the issue: if it changes, the server has something new.
  const saidOf = (issue) => JSON.stringify([fleet.state, shot.workers.filter((row) => row.issue_id === issue).map((row) => [row.worker_id, row.attempt]),
    ...[shot.outcomes, shot.quarantined, shot.questions, shot.approvals, shot.occupied, shot.landing?.waiting_to_land ?? [], shot.landing?.last ?? []]
      .map((rows) => rows.filter((row) => row.issue_id === issue))]);
  const drawPanel = () => {
    if (open === null || !shot) return;
    const title = found?.title || open.title || "";
    const number = open.number ? ` attempt ${open.number}${open.worker ? ` on ${safe(open.worker)}` : ""}` : "";
    set(byId("log-title"), `${safe(open.issue)}${number}${title ? `: ${safe(title)}` : ""}`);
    byId("places").hidden = !found?.place;
    set(byId("place"), found?.place ?? "");
    const at = found ? found.attempts.findIndex((pin) => pin.request === found.pin.request) : -1;
    byId("older").disabled = at <= 0;
    byId("newer").disabled = at < 0 || at >= found.attempts.length - 1;
    byId("download").href = `download?${query(open)}`;
    drawActs();
    const said = saidOf(open.issue);
    if (said !== knownOf && connected) { knownOf = said; inquire(open); }
  };
  const inquire = async (pin) => {
    const told = await got("attempt", pin);
    if (open !== pin) return;
    if (!told || told.error) { knownOf = told ? knownOf : ""; if (told) set(byId("about"), told.error); return; }
    found = told;
    const newest = !pin.number;
    Object.assign(open, { ...told.pin, title: told.title || pin.title, seconds: told.seconds });
    if (newest && tab === "log") tail(open);
    if (tab === "about") drawAbout();
    soon();
  };
  const step = (by) => {
    const at = found.attempts.findIndex((pin) => pin.request === found.pin.request) + by;
    if (found.attempts[at]) read({ ...found.attempts[at], title: found.title });
  };
  byId("older").addEventListener("click", () => step(-1));
  byId("newer").addEventListener("click", () => step(1));

  // The buttons are those of "actions" in ui/attempt_view.py; each is a row of ui/bindings.py.
  const ACTS = {
    release: ["Release", "danger", (issue) => ask("bw.release", { issue_ids: [issue] }, `Take ${safe(issue)} (${safe(open.title)}) away from ${safe(open.worker)}? Its task is ended, and the issue is on hold until it is retried.`)],
    again: ["Try again", "", (issue) => tell("bw.retry", { issue_ids: [issue] })],
    approve: ["Approve", "", (issue) => askApproval(awaiting(issue))],
    reply: ["Answer", "", (issue, box) => send(box, "bw.answer", issue, "Type the answer first.")],
    reject: ["Reject", "", (issue, box) => send(box, "bw.reject", issue, "Type what is wrong first: its agent reads it.")],
  };
  const awaiting = (issue) => shot.approvals.find((row) => row.issue_id === issue);
  const TEXTS = { reply: "Answer to", reject: "Remarks on" };
  const drawActs = () => {
    const acts = decides() ? found?.actions ?? [] : [];
    const about = acts.some((act) => act.button in TEXTS) ? acts.find((act) => act.button in TEXTS).button : null;
    const asked = shot.questions.find((row) => row.issue_id === open.issue);
    const rows = [...(asked ? ["asked"] : []), ...(about ? ["box"] : []), ...acts.map((act) => act.button)];
    keyed(byId("acts"), rows, (name) => `${draftOf(open.issue, "reply")}\0${name}`, (name) => {
      if (name === "asked") return el("pre", "asked", el("bdi", "", inLines(asked.question)));
      if (name === "box") return words(draftOf(open.issue, about), `${TEXTS[about]} ${safe(open.issue)}`);
      const [label, tone, act] = ACTS[name];
      const button = el("button", tone ? `${name} ${tone}` : name, label);
      if (name === "release") button.id = "release";
      button.addEventListener("click", () => act(open.issue, byId("acts").querySelector("textarea")));
      return button;
    }, (node, name) => {
      const row = awaiting(open.issue);
      if (name === "approve") node.disabled = !row || unseen(row);
      if (name === "reject") set(node, commentsOn(open.issue).length ? `Reject with ${counted(commentsOn(open.issue).length, "comment")}` : "Reject");
    });
  };
  const draftOf = (issue, about) => {
    const asked = about === "reply" && shot.questions.find((row) => row.issue_id === issue);
    return asked ? `${issue}\0${asked.asked_at}` : issue;
  };

  // --- its log -----------------------------------------------------------------------------------
  const LINES_MAX = 20000; // that are followed; of a longer log only the end is drawn again
  let part = null;     // where the drawn part begins and ends in the log, and its name
  let tailing = 0;
  const atEnd = (node) => node.scrollHeight - node.scrollTop - node.clientHeight < 30;
  const lineNode = (text, at) => {
    const time = el("span", "t", at ? new Date(1000 * at).toLocaleTimeString("en-GB") : "");
    const kind = /^\[beads-workers\]|^  \| /.test(text) ? " ours" : /^  ! |^failed: /.test(text) ? " bad" : "";
    return el("div", "line" + kind, time, foreign(text, "bdi"), "\n");
  };
  const drawLines = (told, pin, first) => {
    const box = byId("lines");
    const stays = byId("follow").checked && (first || atEnd(box));
    if (first) box.replaceChildren();
    box.querySelector(".begun")?.remove();
    const came = first ? 0 : Date.now() / 1000;
    box.append(...told.lines.map((text, n) => lineNode(text, told.times[n] ?? came)));
    if (told.begun) { const begun = lineNode(told.begun, 0); begun.classList.add("begun"); box.append(begun); }
    if (!box.childElementCount) box.append(el("div", "line none", told.runs ? "nothing printed yet" : "it printed nothing"));
    else if (box.childElementCount > 1) box.querySelector(".none")?.remove();
    if (box.childElementCount > LINES_MAX && byId("follow").checked) part.end = -1; // Its end is read anew.
    byId("earlier").hidden = part.begin === 0;
    if (stays) box.scrollTop = box.scrollHeight;
    search();
  };
  const tail = async (pin) => {
    clearTimeout(tailing);
    if (part?.end === -1) part = null;
    const first = part === null;
    const told = await got("log", pin, first ? {} : { after: part.end });
    if (open !== pin || tab !== "log") return;
    let again = 1000;
    if (told?.error) {
      if (first) byId("lines").replaceChildren(el("div", "line none", safe(told.error)));
    } else if (told) {
      const other = !first && (told.anew || told.name !== part.name);
      if (other) { part = null; tail(pin); return; } // The output of a step became the log of the attempt.
      part = { begin: first ? told.begin : part.begin, end: told.end, name: told.name, runs: told.runs };
      if (first || told.lines.length || told.begun || byId("lines").querySelector(".begun")) drawLines(told, pin, first);
      if (told.end < told.size && told.lines.length) again = 0;
      if (!told.runs && !again) again = 10;
      if (!told.runs && again === 1000) return; // It is whole.
    }
    if (!document.hidden) tailing = setTimeout(() => tail(pin), again);
  };
  byId("earlier").addEventListener("click", async () => {
    const pin = open;
    const told = await got("log", pin, { before: part.begin });
    if (open !== pin || !told || told.error) return;
    const box = byId("lines");
    const below = box.scrollHeight - box.scrollTop;
    box.prepend(...told.lines.map((text, n) => lineNode(text, told.times[n])));
    part.begin = told.begin;
    byId("earlier").hidden = part.begin === 0;
    box.scrollTop = box.scrollHeight - below;
    search();
  });
  byId("wrap").addEventListener("change", () => byId("lines").classList.toggle("wrapped", byId("wrap").checked));
  byId("times").addEventListener("change", () => byId("lines").classList.toggle("timed", byId("times").checked));
  byId("follow").addEventListener("change", () => { if (byId("follow").checked) byId("lines").scrollTop = byId("lines").scrollHeight; });
  // Scrolling up holds the log; at its end it is followed again.
  byId("lines").addEventListener("scroll", () => { if (part?.runs) byId("follow").checked = atEnd(byId("lines")); });
  let hits = [], hit = 0;
  const search = (move = 0) => {
    const wanted = byId("find").value.toLowerCase();
    for (const node of byId("lines").querySelectorAll(".hit")) node.classList.remove("hit", "at");
    hits = wanted ? [...byId("lines").children].filter((node) => node.textContent.toLowerCase().includes(wanted)) : [];
    for (const node of hits) node.classList.add("hit");
    if (move) hit += move;
    hit = hits.length ? (hit + hits.length) % hits.length : 0;
    byId("hits").value = wanted ? (hits.length ? `${hit + 1} of ${count(hits.length)}` : "not found") : "";
    hits[hit]?.classList.add("at");
    if (move !== 0 || (wanted && document.activeElement === byId("find"))) hits[hit]?.scrollIntoView({ block: "center" });
  };
  byId("find").addEventListener("input", () => { hit = -1; search(1); });
  byId("find").addEventListener("keydown", (event) => { if (event.key === "Enter") search(event.shiftKey ? -1 : 1); });

  // --- its diff, and all about it ----------------------------------------------------------------
  const DIFF_TONES = { "+": "plus", "-": "minus", "@": "hunk", d: "file" };
  const drawDiff = async (pin) => {
    set(byId("diff"), "reading");
    byId("diff").said = byId("diff").told = null;
    byId("diff").classList.remove("commentable");
    const told = await got("diff", pin);
    if (open !== pin || !told) return;
    const lines = told.error ? [told.error] : told.lines;
    const from = lines.findIndex((line) => line.startsWith("diff --git "));
    byId("diff").replaceChildren(...lines.map((line, n) => el("div", `line ${from >= 0 && n >= from ? /^(---|\+\+\+) ([ab]\/|\/dev\/null)/.test(line) ? "hunk" : DIFF_TONES[line[0]] ?? "" : ""}`, foreign(line), "\n")));
    const row = awaiting(pin.issue);
    if (told.error || !row) return;
    looked.set(pin.issue, row.commit);
    byId("diff").told = told;
    if (hello.control) byId("diff").classList.add("commentable");
    commentsOn(pin.issue).forEach(drawComment);
    draw();
  };
  // A tap on a line of a branch that awaits approval: what is typed there goes with Reject.
  const drawComment = (one) => byId("diff").querySelectorAll(".line")[one.line]?.after(el("div", "comment", foreign(one.text)));
  byId("diff").addEventListener("click", (event) => {
    const line = event.target.closest(".line");
    const { told } = byId("diff");
    const at = line ? [...byId("diff").querySelectorAll(".line")].indexOf(line) : -1;
    if (!decides() || !told?.places?.[at] || !awaiting(open.issue) || String(getSelection())) return;
    byId("diff").querySelector(".writing")?.remove();
    const issue = open.issue;
    const box = words(`${issue}\0${at}`, `Comment on ${safe(told.places[at])}`);
    const add = el("button", "", "Add");
    const form = el("div", "writing form", box, add);
    add.addEventListener("click", () => {
      if (!box.value.trim()) { box.focus(); return; }
      let first = at;
      while (first > 0 && at - first < 3 && told.places[first - 1]) first -= 1;
      const one = { line: at, place: told.places[at], code: told.lines.slice(first, at + 1).join("\n"), text: box.value.trim() };
      comments.set(issue, [...commentsOn(issue), one]);
      drafts.delete(box.about);
      form.remove();
      drawComment(one);
      draw();
    });
    line.after(form);
    box.focus();
  });
  const drawAbout = async () => {
    const pin = open;
    const section = (heading, lines) => el("section", "", el("h3", "", safe(heading)), ...lines);
    const parts = found.sections.map(([heading, lines]) => section(heading, heading === "attempts" && found.attempts.length === lines.length
      ? [el("ol", "tries", ...lines.map((line, n) => el("li", "", opener(() => ({ ...found.attempts[n], title: found.title }), foreign(line)))))]
      : lines.map((line) => el("div", "line", foreign(line), "\n"))));
    const now = found.now ? [el("p", "", foreign(found.now))] : [];
    const why = section(`why ${open.issue}`, [el("div", "line none", "asking")]);
    byId("about").replaceChildren(...now, why, ...parts);
    const told = await got("why", pin);
    if (open !== pin || !told) return;
    why.replaceChildren(why.firstElementChild, ...(told.error ? [told.error] : told.lines).map((line) => el("div", "line", foreign(line), "\n")));
  };
  byId("close").addEventListener("click", () => read(null));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && open !== null && !document.querySelector("dialog[open]")) read(null);
  });

  // --- all issues --------------------------------------------------------------------------------
  // Asked for only while the list is open: the tracker has to answer. ui/backlog.py sorts them.
  let backlog = null, asking = 0;
  const askIssues = async () => {
    clearTimeout(asking);
    if (!byId("listed").open || document.hidden) return;
    const told = shot ? await got("issues", {}, { known: backlog?.mark }) : null;
    if (told?.groups) { backlog = told; drawIssuesByState(); }
    const note = told?.error || backlog?.unseen && `without the tracker: ${backlog.unseen}` || (backlog ? `${counted(backlog.groups.reduce((sum, group) => sum + (group.title === "closed" ? 0 : group.count), 0), "issue")} not closed${backlog.cut ? ", of more" : ""}` : "the tracker is asked");
    set(byId("backlog-note"), safe(note));
    asking = setTimeout(askIssues, backlog ? 5000 : 500);
  };
  const drawIssuesByState = () => {
    const wanted = byId("sought").value.toLowerCase();
    const groups = backlog.groups.map((group) => ({ ...group, rows: group.rows.filter((row) => (row.cause ? !wanted : `${row.issue} ${row.title} ${row.note}`.toLowerCase().includes(wanted))) })).filter((group) => group.rows.length);
    keyed(byId("states"), groups, (group) => group.title, (group) => el("section", "plain", el("h3", "", safe(group.title), " ", el("small")), el("ul")), (node, group) => {
      set(node.querySelector("small"), wanted ? `${count(group.rows.length)} of ${count(group.count)}` : `${count(group.count)}${group.title === "closed" ? ", the last ones" : ""}`);
      keyed(node.lastElementChild, group.rows, (row) => row.cause ?? `${row.issue}\0${row.title}`, (row) => (row.cause ? el("li", "", el("b"), foreign(row.cause, "span", "bad"))
        : el("li", "", opener(() => pinIssue(row.issue), foreign(row.issue, "code"), " ", foreign(row.title)), " ", el("bdi", "dim"))),
        (item, row) => (row.cause ? set(item.firstElementChild, `${count(row.count)} x `) : set(item.lastElementChild, safe(row.note))));
    });
  };
  byId("listed").addEventListener("toggle", askIssues);
  byId("sought").addEventListener("input", () => { if (backlog) drawIssuesByState(); });

  // --- reports -----------------------------------------------------------------------------------
  byId("nights").addEventListener("click", async () => {
    const told = await got("nights", {});
    const rows = told?.nights ?? [];
    byId("nights-list").replaceChildren(...(rows.length ? rows : [null]).map((row) => {
      if (row === null) return el("li", "none", safe(told?.error ?? "nothing has run here yet"));
      const link = el("a", "", `${moment(1000 * row.began_at)}${row.ended_at ? ` to ${moment(1000 * row.ended_at)}` : ", runs"}`);
      [link.href, link.target, link.rel] = [`report?${new URLSearchParams({ run: row.run_id })}`, "_blank", "noopener"];
      return el("li", "", link, el("span", "dim", ` closed ${count(row.closed)}, failed attempts ${count(row.failed)}${row.runs > 1 ? `, ${counted(row.runs, "run")}` : ""}`));
    }));
    byId("reports").showModal();
  });
