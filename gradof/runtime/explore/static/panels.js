// The views that are no code: passes, the ledger, time, traces, the audit, what stands out.
import { vendor } from "./vendor.js";
import { CodeView } from "./code.js";
import { bytes, coloured, escape, seconds } from "./colour.js";
import { difference, inContext } from "./diff.js";
import { element, hue, isLit, light, listen, model, origins, textOf } from "./state.js";

function panel(id, title, ...children) {
  return element("div", { class: "view", "data-view": id, tabindex: "0", "aria-label": title }, ...children);
}

// --- passes ---------------------------------------------------------------------------------------

const PARTS = { reverse: "trace → reverse", f: "f", df: "df" };

export class PassesView {
  constructor() {
    this.list = element("div", { class: "steps", role: "listbox" });
    this.right = element("div", {});
    this.root = panel("passes", "Passes", element("div", { class: "split" }, element("div", {}, this.list), this.right));
    this.shown = -1;
    let part = "";
    this.buttons = model.passes.map((pass, k) => {
      if (pass.part !== part) {
        part = pass.part;
        this.list.append(element("h4", {}, PARTS[part] || `loops of ${part}`));
      }
      const same = pass.lines === null;
      const button = element("button", {
        class: `step${same ? " same" : ""}`, role: "option", "aria-selected": "false",
        title: same ? "changes nothing here" : pass.about, onclick: () => this.show(k),
      }, element("span", {}, pass.name));
      if (pass.added) button.append(element("span", { class: "plus", style: "flex:none" }, `+${pass.added}`));
      if (!same && !pass.added && !pass.removed && k && model.passes[k - 1].part === part) button.append(element("span", { class: "dim", style: "flex:none", title: "another order" }, "~"));
      if (pass.removed) button.append(element("span", { class: "minus", style: "flex:none" }, `−${pass.removed}`));
      this.list.append(button);
      return button;
    });
  }

  opened() {
    if (this.shown < 0) this.show(Math.max(0, model.passes.findIndex((p) => p.name === "reverse")));
  }

  show(k) {
    this.shown = k;
    this.buttons.forEach((button, j) => button.setAttribute("aria-selected", j === k));
    const pass = model.passes[k];
    let before = null;
    for (let j = k - 1; j >= 0 && !before; j--) {
      if (model.passes[j].part === pass.part) before = model.passes[j].lines;
    }
    const edits = pass.lines === null ? [] : before ? inContext(difference(before, pass.lines)) : pass.lines.map((_, j) => [" ", j, j]);
    const lines = [], signs = [], numbers = [];
    for (const [sign, i, j] of edits) {
      lines.push(sign === "…" ? gapLine(j) : sign === "-" ? before[i] : pass.lines[j]);
      signs.push(sign);
      numbers.push(sign === "…" ? 0 : (sign === "-" ? i : j) + 1);
    }
    const about = element("div", { class: "about" });
    about.innerHTML = `<b>${escape(pass.name)}</b> ${escape(pass.about)}.` + (pass.lines === null ? "<br>Nothing to do here." : "");
    const code = new CodeView({ id: `pass ${k}`, title: pass.name, language: "ir", lines, signs, numbers });
    code.root.classList.remove("view");
    this.right.replaceChildren(about, code.root);
    code.update(false);
  }
}

function gapLine(count) {
  model.lines.push([`⋯ ${count} more`, []]);
  return model.lines.length - 1;
}

// --- the ledger -----------------------------------------------------------------------------------

export class LedgerView {
  constructor() {
    const { budgets, current } = model.ledger;
    this.at = current;
    this.leaves = new Map();
    this.map = element("div", { class: "map" });
    this.sum = element("div", { class: "big", id: "saved-bytes" });
    this.words = element("p", { class: "dim", id: "saved-words" });
    this.output = element("output", { id: "budget" });
    this.slider = element("input", {
      type: "range", min: 0, max: budgets.length - 1, step: 1, value: current, id: "slider",
      "aria-label": "memory_budget", oninput: () => this.draw(+this.slider.value),
    });
    const side = element("div", { class: "side" }, element("h3", {}, "Saved for the backward"), this.sum, this.words,
      element("label", { for: "slider" }, "memory_budget", this.output), this.slider, this.curve());
    side.insertAdjacentHTML("beforeend", '<div class="legend"><span><i></i>kept for the backward alone, in the colour of its line</span>' +
      '<span><i class="kept"></i>an input or an output: there anyway</span></div>');
    this.root = panel("ledger", "Ledger", element("div", { class: "ledger" }, side, this.map));
    new ResizeObserver(() => this.draw(this.at)).observe(this.map);
    listen(() => this.update());
  }

  curve() {
    const { budgets } = model.ledger, most = Math.max(1, ...budgets.map((b) => b.bytes));
    const points = budgets.map((b, k) => [(100 * k) / (budgets.length - 1), 50 - (46 * b.bytes) / most]);
    const figure = element("div", {});
    figure.innerHTML = `<svg class="curve" viewBox="0 0 100 54" preserveAspectRatio="none" aria-hidden="true"><path d="M0 54L${points.map((p) => p.join(" ")).join("L")}L100 54Z"/></svg>`;
    return figure;
  }

  draw(at) {
    this.at = at;
    const row = model.ledger.budgets[at], now = model.ledger.budgets[model.ledger.current];
    this.output.textContent = row.budget === null ? "None" : String(row.budget);
    this.sum.textContent = bytes(row.bytes);
    this.sum.dataset.bytes = row.bytes;
    const again = row.again - now.again;
    this.words.innerHTML = `${row.saved.length} values, ${row.bytes} bytes (${row.beyond} beyond inputs and outputs)` +
      (again ? `<br>${Math.abs(again)} ${again > 0 ? "more" : "fewer"} operations in the backward than as compiled` : "<br>as it is compiled");
    const box = this.map.getBoundingClientRect();
    if (box.width < 10) return;
    const values = row.saved.map((k) => model.ledger.values[k]).filter((v) => v.bytes);
    const tree = vendor.hierarchy({ children: values }).sum((v) => v.bytes || 0).sort((a, b) => b.value - a.value);
    vendor.treemap().size([box.width, box.height]).paddingInner(2).round(true)(tree);
    const seen = new Set(), counts = new Map();
    for (const leaf of values.length ? tree.leaves() : []) {
      const plain = `${leaf.data.name} ${leaf.data.type} ${leaf.data.loc}`;
      counts.set(plain, (counts.get(plain) || 0) + 1);
      const key = `${plain} ${counts.get(plain)}`;
      seen.add(key);
      this.leaf(key, leaf);
    }
    for (const [key, tile] of this.leaves) if (!seen.has(key)) { tile.remove(); this.leaves.delete(key); }
    if (!values.length) this.map.innerHTML = '<p class="empty">Nothing is saved.</p>';
    else this.map.querySelector(".empty")?.remove();
    this.update();
  }

  leaf(key, { data, x0, y0, x1, y1 }) {
    let tile = this.leaves.get(key);
    if (!tile) {
      tile = element("button", { class: "leaf" });
      tile.addEventListener("click", () => light(tile.nodes, "ledger", `%${data.name}`));
      this.leaves.set(key, tile);
      this.map.append(tile);
    }
    tile.nodes = data.origins;
    tile.classList.toggle("kept", data.kind !== "a temporary");
    tile.style.cssText = `left:${x0}px;top:${y0}px;width:${x1 - x0}px;height:${y1 - y0}px;--h:${hue(data.origins)}`;
    const place = data.loc.split("/").pop();
    tile.title = `%${data.name} ${data.type}\n${data.bytes} bytes, ${data.kind}: ${data.why}\n${place}\nfor ${data.readers.join(", ")}`;
    const room = (x1 - x0) > 56 && y1 - y0 > 20;
    tile.innerHTML = room ? `<b>%${escape(data.name)}</b><span>${bytes(data.bytes)}</span><small>${escape(data.type)}</small><small>${escape(place)}</small><small>${escape(data.why)}</small>` : "";
  }

  opened() { this.draw(this.at); }

  update() { for (const tile of this.leaves.values()) tile.classList.toggle("on", isLit(tile.nodes)); }
}

// --- tables ---------------------------------------------------------------------------------------

function table(id, title, head, rows) {
  const body = element("tbody");
  const root = panel(id, title, element("table", { class: "grid" }, element("thead"), body));
  root.querySelector("thead").innerHTML = `<tr>${head.map((h) => `<th class="${h.startsWith(">") ? "r" : ""}">${h.replace(/^>/, "")}</th>`).join("")}</tr>`;
  for (const { nodes, html } of rows) {
    const row = element("tr", nodes.length ? { "data-o": nodes.join(","), tabindex: "0", style: `--h:${hue(nodes)}` } : {});
    row.innerHTML = html;
    if (nodes.length) {
      row.addEventListener("click", () => light(nodes, id, row.innerText.trim()));
      row.addEventListener("keydown", (e) => e.key === "Enter" && row.click());
      listen(() => row.classList.toggle("on", isLit(nodes)));
    }
    body.append(row);
  }
  return { root };
}

export function timeView() {
  const { time } = model;
  if (!time) return { root: panel("time", "Time", element("p", { class: "empty" }, "Not measured: explore was asked not to run the code.")) };
  const most = Math.max(...time.rows.map((r) => Math.max(r.seconds, r.best)), 1e-9), whole = time.f + time.df;
  const rows = [...time.rows].sort((a, b) => b.seconds - a.seconds).map((r) => ({
    nodes: origins(r.line),
    html: `<td class="part">${r.part}</td><td class="mono">${escape(r.text)}</td><td class="r">${seconds(r.seconds)}</td>` +
      `<td class="r">${((100 * r.seconds) / whole).toFixed(1)} %</td><td class="wide"><div class="bar" title="${seconds(r.best)} at the machine's speeds"><i style="width:${(100 * r.seconds) / most}%"></i>` +
      `<b style="left:${Math.min(99.5, (100 * r.best) / most)}%"></b></div></td><td class="r">${bytes(r.bytes)}</td><td class="r">${r.operations ? `${(r.operations / 1e6).toFixed(1)} M` : ""}</td>`,
  }));
  const made = table("time", "Time", ["", "statement", ">measured", ">share", "the mark is what memory and arithmetic allow", ">bytes", ">operations"], rows);
  made.root.insertAdjacentHTML("afterbegin", `<p class="about"><b>${seconds(time.f)}</b> in f, <b>${seconds(time.df)}</b> in df, statement by statement, median of up to 15 runs. ` +
    `This machine: ${(time.speeds.bytes / 1e9).toFixed(1)} GB/s of memory, ${(time.speeds.operations / 1e9).toFixed(0)} G operations/s in products. Arrays in a cache can be faster than the mark.</p>`);
  return made;
}

export function tracesView() {
  const { calls, traces } = model;
  const list = element("ol", { class: "history" });
  for (const { reason, seconds: t, changes } of traces) {
    const what = element("code", {});
    what.innerHTML = changes.length === 0 ? escape(reason) : changes.map(({ place, was, now }) =>
      `<b>${escape(place)}</b> <del>${escape(was)}</del> → <ins>${escape(now)}</ins>`).join("<br>");
    list.append(element("li", {}, what, element("span", { class: "dim" }, `  ${seconds(t)}`)));
  }
  const head = element("p", { class: "dim" },
    `${calls.traced} traced, ${calls.hits} found a trace, ${calls.eager} ran eagerly. Each trace, and why it was made:`);
  return { root: panel("traces", "Traces", element("div", { class: "pad" }, head, list)) };
}

export function auditView() {
  const { audit } = model;
  if (!audit) {
    return { root: panel("audit", "Audit", element("p", { class: "empty" },
      "Values and gradients were not compared with eager and float64. gradof explore TARGET --check does it, op by op.")) };
  }
  const byPlace = new Map();
  model.nodes.forEach((node, k) => {
    if (!byPlace.has(node.loc)) byPlace.set(node.loc, []);
    byPlace.get(node.loc).push(k);
  });
  const cell = (text, ok = true) => `<td class="r ${ok ? "" : "bad"}">${text ?? "–"}</td>`;
  const mark = (ok) => `<td class="${ok ? "ok" : "bad"}">${ok ? "right" : "WRONG"}</td>`;
  const rows = audit.rows.map((r) => ({
    nodes: [], html: `<td class="mono">${escape(r.what)}</td><td>${escape(r.reference)}</td>${cell(r.error, r.ok)}${cell(r.eager)}${cell(r.allowed)}${mark(r.ok)}`,
  }));
  const ops = audit.ops.map((o) => {
    const here = byPlace.get(o.loc) || [];
    const own = here.filter((k) => model.nodes[k].op === o.op);
    return { nodes: own.length ? own : here,
      html: `<td class="mono">${escape(o.op)}</td><td>${escape(o.loc.split("/").pop())}</td>${cell(o.eager)}${cell(o.float64)}${cell(o.backward)}${mark(o.ok)}` };
  });
  const made = table("audit", "Audit", ["quantity", "against", ">error", ">eager's", ">allowed", ""], rows);
  if (ops.length) made.root.append(...table("audit", "Audit", ["op, by itself", "line", ">against eager", ">against float64", ">its gradient", ""], ops).root.children);
  return made;
}

export function findingsView() {
  const box = element("div", { class: "pad" });
  for (const found of model.findings) {
    const card = element("button", { class: `card ${found.level}`, onclick: () => light(found.origins, "findings", found.title) });
    card.innerHTML = `<h3>${escape(found.title)}</h3><p>${escape(found.text)}</p>` +
      found.lines.map(([place, text]) => `<code><i>${escape(place)}</i>${coloured(text, "python")}</code>`).join("") + `<p class="do">${escape(found.hint)}</p>`;
    box.append(card);
  }
  if (!model.findings.length) box.append(element("p", { class: "empty" }, "Nothing stands out: no NaN, one trace, and no large value that is saved without need."));
  return { root: panel("findings", "Findings", box) };
}
