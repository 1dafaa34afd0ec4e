// The room: three panes and a dock of views, tabs, keys, search, and the line at the foot.
import { CodeView } from "./code.js";
import { bytes, escape, seconds } from "./colour.js";
import { GraphView } from "./graph.js";
import { auditView, findingsView, LedgerView, PassesView, timeView, tracesView } from "./panels.js";
import { element, isLit, light, listen, litLines, model, origins, state, textOf, view } from "./state.js";

const ROOM = [
  ["source", "findings", "graph"],
  ["trace", "reverse", "f", "df", "passes"],
  ["code", "loops", "llvm", "triton"],
  ["ledger", "time", "traces", "audit"],
];
const TITLES = { findings: "Findings", graph: "Graph", passes: "Passes", ledger: "Ledger", time: "Time", traces: "Traces", audit: "Audit" };
const warnings = new Map();
for (const found of [...model.findings].reverse()) found.origins.forEach((n) => warnings.set(n, found.level));

const made = new Map(); // views by id, once they are opened
const make = {
  findings: findingsView, graph: () => new GraphView(), passes: () => new PassesView(),
  ledger: () => new LedgerView(), time: timeView, traces: tracesView, audit: auditView,
};
const order = ROOM.flat().filter((id) => make[id] || view(id));
const panes = [];
const tabs = new Map(); // id → its tabs: one in its pane, one in the bar of small screens

// --- views and their tabs -------------------------------------------------------------------------

function open(id, focus = false) {
  const pane = panes.find((each) => each.ids.includes(id));
  if (!made.has(id)) {
    const shown = make[id] ? make[id]() : new CodeView(view(id), id === "source" ? warnings : undefined);
    made.set(id, shown);
    pane.body.append(shown.root);
    if (shown.rail) pane.body.append(shown.rail);
    if (shown.update) shown.update();
  }
  for (const other of pane.ids) {
    const shown = made.get(other);
    if (shown) { shown.root.hidden = other !== id; if (shown.rail) shown.rail.hidden = other !== id; }
  }
  pane.now = id;
  panes.forEach((each) => each.root.classList.toggle("active", each === pane));
  for (const [name, buttons] of tabs) {
    const inPane = panes.find((each) => each.ids.includes(name));
    buttons[0].setAttribute("aria-selected", inPane.now === name);
    buttons[1].setAttribute("aria-selected", name === id);
  }
  made.get(id).opened?.();
  if (focus) made.get(id).root.focus({ preventScroll: true });
}

function tab(id) {
  const badge = element("em", {});
  const button = element("button", { class: "tab", role: "tab", "data-tab": id, onclick: () => open(id, true) },
    TITLES[id] || view(id).title, badge);
  tabs.set(id, [...(tabs.get(id) || []), button]);
  return button;
}

function build() {
  const room = document.getElementById("room");
  ROOM.forEach((ids, k) => {
    const present = ids.filter((id) => order.includes(id));
    const body = element("div", { class: "body" });
    const bar = element("div", { class: "tabs", role: "tablist" }, ...present.map(tab));
    const root = element("section", { class: k === 3 ? "pane dock" : "pane" }, bar, body);
    if (k < 2) root.append(element("div", { class: "grip x", "data-grip": k + 1 }));
    if (k === 3) root.prepend(element("div", { class: "grip y", "data-grip": "dock" }));
    if (k < 2) root.style.overflow = "visible";
    if (k === 3) root.style.overflow = "visible";
    room.append(root);
    panes.push({ ids: present, body, root, now: present[0] });
  });
  document.getElementById("all").append(...order.map(tab));
  room.addEventListener("pointerdown", grip);
}

// Drag the edge between panes.
function grip(event) {
  const what = event.target.dataset?.grip;
  if (!what) return;
  const room = document.getElementById("room"), box = room.getBoundingClientRect();
  event.target.setPointerCapture(event.pointerId);
  const move = (e) => {
    if (what === "dock") room.style.setProperty("--dock", `${Math.max(90, box.bottom - e.clientY)}px`);
    else {
      const sizes = panes.slice(0, 3).map((p) => p.root.getBoundingClientRect());
      const k = +what - 1, left = Math.max(150, e.clientX - sizes[k].left), sum = sizes[k].width + sizes[k + 1].width;
      sizes.forEach((s, j) => room.style.setProperty(`--c${j + 1}`, `${j === k ? left : j === k + 1 ? Math.max(150, sum - left) : s.width}fr`));
    }
  };
  const stop = () => { event.target.removeEventListener("pointermove", move); };
  event.target.addEventListener("pointermove", move);
  event.target.addEventListener("pointerup", stop, { once: true });
}

// --- what is lit ----------------------------------------------------------------------------------

function badges() {
  for (const [id, buttons] of tabs) {
    let count = 0;
    if (view(id)) count = litLines(view(id)).length;
    else if (id === "ledger") count = model.ledger.budgets[model.ledger.current].saved.filter((k) => isLit(model.ledger.values[k].origins)).length;
    else if (id === "time" && model.time) count = model.time.rows.filter((r) => isLit(origins(r.line))).length;
    for (const button of buttons) {
      const badge = button.querySelector("em");
      badge.className = "";
      badge.textContent = count || "";
      if (id === "findings" && model.findings.length) {
        badge.textContent = model.findings.length;
        badge.className = model.findings[0].level;
      }
    }
  }
}

function status() {
  const foot = document.getElementById("status");
  if (!state.lit.size) {
    foot.innerHTML = 'Click on a line to see what it became. <kbd>/</kbd> searches, <kbd>?</kbd> has the keys.';
    return;
  }
  const nodes = [...state.lit].map((n) => model.nodes[n]);
  const places = [...new Set(nodes.map((n) => n.loc.split("/").pop()).filter(Boolean))];
  const counts = model.views.filter((v) => v.id !== "source").map((v) => [v.title, litLines(v).length]).filter(([, n]) => n);
  const saved = model.ledger.budgets[model.ledger.current].saved.map((k) => model.ledger.values[k]).filter((v) => v.kind === "a temporary" && isLit(v.origins));
  const time = model.time ? model.time.rows.filter((r) => isLit(origins(r.line))).reduce((sum, r) => sum + r.seconds, 0) : 0;
  foot.innerHTML = `<b>${escape(places.slice(0, 3).join(", "))}</b> <code>${escape(state.what.slice(0, 90))}</code> → ` +
    counts.map(([title, n]) => `${n} in ${title}`).join(" · ") +
    (saved.length ? ` · <b>${bytes(saved.reduce((sum, v) => sum + v.bytes, 0))}</b> saved` : "") + (time ? ` · <b>${seconds(time)}</b>` : "");
}

// --- search ---------------------------------------------------------------------------------------

function search() {
  const input = document.getElementById("search"), box = document.getElementById("results");
  let found = [], at = 0;
  const close = () => { box.hidden = true; };
  const go = (k) => {
    const hit = found[k];
    if (!hit) return;
    open(hit.id);
    const shown = made.get(hit.id);
    shown.at = -1;
    shown.select(hit.k);
    shown.show(hit.k);
    mark(k);
  };
  const mark = (k) => {
    at = k;
    [...box.children].forEach((row, j) => row.classList.toggle("at", j === k));
    box.children[k]?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => {
    const word = input.value.trim().toLowerCase();
    found = [];
    if (word) {
      for (const id of order) {
        view(id)?.lines.forEach((line, k) => {
          if (found.length < 80 && textOf(line).toLowerCase().includes(word)) found.push({ id, k, line });
        });
      }
    }
    box.hidden = !word;
    box.replaceChildren(...found.map((hit, k) => element("button", { role: "option", onclick: () => { go(k); close(); } },
      element("span", {}, view(hit.id).title), textOf(hit.line).trim().slice(0, 120))));
    if (word && !found.length) box.append(element("p", { class: "empty" }, "Nothing has it."));
    mark(0);
  });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter") { go((at + (e.shiftKey ? -1 : 0) + found.length) % Math.max(1, found.length)); if (!e.shiftKey) mark((at + 1) % Math.max(1, found.length)); }
    if (e.key === "ArrowDown") { e.preventDefault(); mark(Math.min(found.length - 1, at + 1)); }
    if (e.key === "ArrowUp") { e.preventDefault(); mark(Math.max(0, at - 1)); }
    if (e.key === "Escape") { input.value = ""; close(); input.blur(); }
    e.stopPropagation();
  });
  document.addEventListener("pointerdown", (e) => { if (!e.target.closest(".find")) close(); });
}

// --- keys and the head ----------------------------------------------------------------------------

function focused() {
  return Math.max(0, panes.findIndex((pane) => pane.root.contains(document.activeElement)));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT/.test(event.target.tagName)) return;
  const pane = panes[focused()], shown = made.get(pane.now);
  const side = (by) => { const next = panes[(focused() + by + panes.length) % panes.length]; open(next.now, true); };
  const act = {
    "/": () => document.getElementById("search").focus(), t: theme, "?": () => document.getElementById("about").showModal(),
    Escape: () => light([]), j: () => shown.step?.(1), k: () => shown.step?.(-1), ArrowDown: () => shown.step?.(1), ArrowUp: () => shown.step?.(-1),
    n: () => shown.step?.(1, true), p: () => shown.step?.(-1, true), h: () => side(-1), l: () => side(1), ArrowLeft: () => side(-1), ArrowRight: () => side(1),
  }[event.key] || (/^\d$/.test(event.key) && order[(+event.key + 9) % 10] ? () => open(order[(+event.key + 9) % 10], true) : null);
  if (act && (!event.key.startsWith("Arrow") || shown.step)) { act(); event.preventDefault(); }
}

function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}

function head() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.getElementById("name").textContent = model.name;
  const now = model.ledger.budgets[model.ledger.current];
  const facts = document.getElementById("facts");
  for (const level of ["wrong", "slow", "note"]) {
    const n = model.findings.filter((f) => f.level === level).length;
    if (n && level !== "note") facts.append(element("button", { class: `chip ${level}`, onclick: () => open("findings", true) }, element("b", {}, String(n)), level === "wrong" ? "to mend" : "to gain"));
  }
  const chip = (value, word) => facts.append(element("span", { class: "chip" }, element("b", {}, String(value)), word));
  chip(model.forward, "nodes forward");
  chip(model.backward, "backward");
  chip(bytes(now.beyond), "saved");
  chip(model.kernels.length, model.kernels.length === 1 ? "kernel" : "kernels");
  if (model.time) chip(seconds(model.time.f + model.time.df), "f and df");
  facts.append(element("span", { class: "chip" }, `${model.library} → ${model.backend}`));
  document.getElementById("made").textContent = `Made by gradof ${model.version}, for ${model.name}(${model.inputs.join(", ")}).`;
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("help").addEventListener("click", () => document.getElementById("about").showModal());
}

head();
build();
listen(badges);
listen(status);
["ledger", "code", "trace", "source"].filter((id) => order.includes(id)).forEach((id) => open(id));
search();
badges();
status();
document.addEventListener("keydown", keys);
