// A view of lines: coloured by where they come from, lit together, with a rail of marks.
import { coloured, escape } from "./colour.js";
import { hue, isLit, light, listen, litLines, origins, state, textOf } from "./state.js";

const CHUNK = 200;

export class CodeView {
  // `view`: {id, lines, language, numbers?, files?, signs?}; `warnings`: level by node.
  constructor(view, warnings = new Map()) {
    this.view = view;
    this.warnings = warnings;
    this.at = -1;
    this.root = document.createElement("div");
    this.root.className = "view";
    this.root.tabIndex = 0;
    this.root.dataset.view = view.id;
    this.root.setAttribute("aria-label", view.title);
    this.code = document.createElement("div");
    this.code.className = "code";
    this.rail = document.createElement("div");
    this.rail.className = "rail";
    this.root.append(this.code);
    this.rows = [];
    this.render();
    this.code.addEventListener("click", (event) => this.clicked(event));
    this.code.addEventListener("mouseover", (event) => this.over(event));
    this.code.addEventListener("mouseleave", () => hover([]));
    listen(() => this.update());
  }

  render() {
    const { lines } = this.view, files = new Map((this.view.files || []).map((f) => [f.at, f]));
    const draw = (first) => {
      const chunk = document.createElement("div");
      chunk.className = "chunk";
      let html = "";
      for (let k = first; k < Math.min(first + CHUNK, lines.length); k++) {
        const file = files.get(k);
        if (file) html += `<div class="file" title="${escape(file.path)}">${escape(file.name)}</div>`;
        html += this.line(k);
      }
      chunk.innerHTML = html;
      chunk.style.containIntrinsicSize = `auto ${Math.min(CHUNK, lines.length - first) * 19.4}px`;
      this.code.append(chunk);
      this.rows.push(...chunk.querySelectorAll(".l"));
      this.register(first);
      if (first + CHUNK < lines.length) {
        if (first < 2 * CHUNK) draw(first + CHUNK);
        else setTimeout(() => { draw(first + CHUNK); this.update(false); }, 0);
      }
    };
    draw(0);
  }

  line(k) {
    const index = this.view.lines[k], nodes = origins(index), text = textOf(index);
    const number = this.view.numbers ? this.view.numbers[k] || "" : k + 1;
    const sign = { "+": " add", "-": " del", "…": " gap" }[this.view.signs?.[k]] || "";
    const level = nodes.map((n) => this.warnings.get(n)).find(Boolean);
    const kind = (nodes.length ? " h" : "") + sign + (text === "⋯" ? " gap" : "") + (level ? ` warn ${level}` : "");
    const style = nodes.length ? ` style="--h:${hue(nodes)}"` : "";
    return `<div class="l${kind}"${style} data-k="${k}"><u>${number}</u><span>${coloured(text, this.view.language)}</span></div>`;
  }

  register(first) {
    for (let k = first; k < Math.min(first + CHUNK, this.view.lines.length); k++) {
      for (const node of origins(this.view.lines[k])) {
        if (!hovered.has(node)) hovered.set(node, []);
        hovered.get(node).push(this.rows[k]);
      }
    }
  }

  clicked(event) {
    const row = event.target.closest(".l");
    if (row && !String(window.getSelection())) this.select(+row.dataset.k);
  }

  // Light what line k comes from and became; again on a lit line of its own: nothing.
  select(k) {
    const nodes = origins(this.view.lines[k]);
    const again = this.at === k && state.lit.size > 0;
    this.at = k;
    light(again ? [] : nodes, this.view.id, textOf(this.view.lines[k]).trim());
  }

  over(event) {
    const row = event.target.closest(".l.h");
    hover(row ? origins(this.view.lines[+row.dataset.k]) : []);
  }

  update(scroll = true) {
    const lit = litLines(this.view), marked = new Set(lit);
    for (const row of this.root.querySelectorAll(".l.on")) {
      if (!marked.has(+row.dataset.k)) row.classList.remove("on");
    }
    lit.forEach((k) => this.rows[k]?.classList.add("on"));
    for (const row of this.root.querySelectorAll(".l.at")) row.classList.remove("at");
    if (state.from === this.view.id && state.lit.size) this.rows[this.at]?.classList.add("at");
    this.marks(lit);
    if (scroll && lit.length && state.from !== this.view.id) this.reveal(lit);
  }

  reveal(lit) {
    const box = this.root.getBoundingClientRect();
    if (!box.height) { this.late = true; return; }
    const shown = lit.some((k) => {
      const row = this.rows[k]?.getBoundingClientRect();
      return row && row.top >= box.top && row.bottom <= box.bottom;
    });
    if (!shown) this.show(lit[0]);
  }

  show(k) {
    const row = this.rows[k];
    if (!row) return;
    const top = row.getBoundingClientRect().top - this.code.getBoundingClientRect().top;
    this.root.scrollTo({ top: Math.max(0, top - this.root.clientHeight * 0.3) });
  }

  opened() {
    if (this.late) { this.late = false; const lit = litLines(this.view); if (lit.length) this.reveal(lit); }
  }

  marks(lit) {
    const n = Math.max(1, this.view.lines.length), seen = new Set();
    this.rail.innerHTML = lit.map((k) => {
      const at = Math.round((300 * k) / n);
      if (seen.has(at)) return "";
      seen.add(at);
      return `<i style="top:${((100 * k) / n).toFixed(2)}%;--h:${hue(origins(this.view.lines[k]))}"></i>`;
    }).join("");
  }

  // The next line that comes from anything, or the one before, in this view; round its ends.
  step(by, lit = false) {
    const { lines } = this.view;
    const fits = (k) => (lit ? isLit(origins(lines[k])) : origins(lines[k]).length > 0);
    const from = this.at < 0 && by < 0 ? 0 : this.at;
    const order = lines.map((_, j) => (from + by * (j + 1) + 2 * lines.length) % lines.length);
    const k = order.find(fits);
    if (k === undefined) return;
    if (lit) { this.at = k; } else { this.at = -1; this.select(k); }
    const row = this.rows[k];
    row?.scrollIntoView({ block: "nearest" });
  }
}

// What the pointer is over lights up faintly in all views.
const hovered = new Map();
let faint = [];
function hover(nodes) {
  faint.forEach((row) => row?.classList.remove("over"));
  faint = nodes.flatMap((n) => hovered.get(n) || []).slice(0, 400);
  faint.forEach((row) => row?.classList.add("over"));
}
