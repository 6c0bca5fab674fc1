"use strict";
// Point at, tap or walk through the attempts of the timeline. The page is whole without this.
(() => {
  const box = document.getElementById("timeline");
  const detail = document.getElementById("detail");
  const bars = [...box.querySelectorAll(".b")];
  const row = (bar) => document.getElementById(bar.getAttribute("href").slice(1));
  const cell = (bar, index) => row(bar).cells[index].textContent;
  const issue = (bar) => cell(bar, 1);
  const byIssue = new Map();
  for (const bar of bars) {
    if (!byIssue.has(issue(bar))) byIssue.set(issue(bar), []);
    byIssue.get(issue(bar)).push(bar);
  }
  let picked = null;

  const line = (className, ...texts) => {
    const p = document.createElement("p");
    p.className = className;
    for (const [tag, text] of texts) {
      const node = document.createElement(tag);
      node.textContent = text;
      p.append(node);
    }
    return p;
  };

  const describe = (bar) => {
    const [began, id, , number, worker, how, took, error] = [...row(bar).cells].map((c) => c.textContent);
    // Only the first attempt's row repeats the title.
    const title = cell(byIssue.get(id)[0], 2);
    const tries = byIssue.get(id).length;
    const facts = `attempt ${number} on ${worker}: ${how} after ${took}, began ${began}` +
      (tries > 1 ? `; ${tries} attempts in this run` : "");
    detail.replaceChildren(
      line("text", ["code", id], ["span", " "], ["bdi", title]),
      line("dim", ["span", facts]),
      line("text error", ["bdi", error]),
    );
  };

  const tell = () => {
    if (picked) return describe(picked);
    detail.replaceChildren(line("dim", ["span",
      "Point at an attempt, or tap it to keep it. Arrow keys walk along and between workers, " +
      "Enter goes to its row, Escape lets go."]));
  };

  const pick = (bar, { scroll = false } = {}) => {
    for (const old of document.querySelectorAll(".picked, .same")) old.classList.remove("picked", "same");
    picked = bar;
    if (bar) {
      for (const other of byIssue.get(issue(bar))) other.classList.add("same");
      bar.classList.add("picked");
      row(bar).classList.add("picked");
      if (scroll) bar.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    tell();
  };

  const visible = () => bars.filter((bar) => getComputedStyle(bar).display !== "none");
  const middle = (bar) => {
    const r = bar.getBoundingClientRect();
    return { x: r.x + r.width / 2, y: r.y + r.height / 2 };
  };
  // The nearest bar in a direction: along the worker's own row, or in the next row that has one.
  const neighbour = (from, key) => {
    const here = middle(from);
    const ahead = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
    const across = key === "ArrowUp" || key === "ArrowDown";
    let best = null, bestCost = Infinity;
    for (const bar of visible()) {
      const there = middle(bar);
      const dx = there.x - here.x, dy = there.y - here.y;
      if (bar === from) continue;
      if (across ? dy * ahead < 1 : Math.abs(dy) > 1 || dx * ahead < 0) continue;
      const cost = across ? Math.abs(dy) * 10000 + Math.abs(dx) : Math.abs(dx);
      if (cost < bestCost) { best = bar; bestCost = cost; }
    }
    return best;
  };

  box.addEventListener("pointerover", (event) => {
    const bar = event.target.closest(".b");
    if (bar) describe(bar);
  });
  box.addEventListener("pointerleave", tell);
  box.addEventListener("click", (event) => {
    const bar = event.target.closest(".b");
    if (bar && (event.ctrlKey || event.metaKey || event.shiftKey)) return;
    event.preventDefault();
    pick(bar === picked ? null : bar);
  });
  box.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) {
      const next = picked ? neighbour(picked, event.key) : visible()[0];
      if (next) pick(next, { scroll: true });
    } else if (event.key === "Escape") {
      pick(null);
    } else if (event.key === "Enter" && picked) {
      row(picked).closest("details").open = true;
      row(picked).scrollIntoView({ block: "center" });
    } else {
      return;
    }
    event.preventDefault();
  });
  // A row leads back to its bar.
  document.querySelector(".attempts tbody")?.addEventListener("click", (event) => {
    const chosen = event.target.closest("tr");
    const bar = chosen && bars.find((b) => b.getAttribute("href") === `#${chosen.id}`);
    if (bar && !String(getSelection())) pick(bar);
  });
  // Zooming keeps the middle of what is seen in the middle.
  let share = 0;
  const remember = () => { share = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth; };
  box.addEventListener("scroll", remember, { passive: true });
  remember();
  for (const zoom of document.querySelectorAll("[name=zoom]")) {
    zoom.addEventListener("change", () => {
      const middleShare = share;
      if (picked) picked.scrollIntoView({ block: "nearest", inline: "center", behavior: "instant" });
      else box.scrollLeft = middleShare * box.scrollWidth - box.clientWidth / 2;
      remember();
    });
  }
  tell();
})();
