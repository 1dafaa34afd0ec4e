// The trace as a graph, laid out by dagre when it is first looked at.
import { vendor } from "./vendor.js";
import { hue, isLit, light, listen, model, state } from "./state.js";
import { escape } from "./colour.js";

const HEIGHT = 34, CHARACTER = 7.1, EDGE = 12;
const LOOKS = { // what a drawing outside of the page takes with it
  g: ["opacity"], path: ["fill", "stroke", "stroke-width", "opacity"], rect: ["fill", "stroke", "stroke-width"],
  text: ["fill", "font-family", "font-size", "font-weight", "text-anchor"],
};

function save(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export class GraphView {
  constructor() {
    this.root = document.createElement("div");
    this.root.className = "view";
    this.root.dataset.view = "graph";
    this.root.tabIndex = 0;
    this.made = false;
    listen(() => this.update());
  }

  opened() {
    if (this.made) return;
    this.made = true;
    this.root.innerHTML = '<p class="empty">Laying out …</p>';
    setTimeout(() => { this.draw(); this.update(); }, 20);
  }

  draw() {
    const graph = new vendor.dagre.graphlib.Graph();
    graph.setGraph({ nodesep: 14, ranksep: 26, ranker: model.nodes.length > 250 ? "longest-path" : "network-simplex" });
    graph.setDefaultEdgeLabel(() => ({}));
    model.nodes.forEach((node, k) => {
      if (node.op === "Constant") return;
      const width = CHARACTER * Math.max(node.op.length, node.name.length + node.type.length * 0.8 + 1, 5) + 16;
      graph.setNode(String(k), { width, height: HEIGHT });
    });
    model.nodes.forEach((node, k) => {
      for (const from of new Set(node.reads)) {
        if (model.nodes[from].op !== "Constant" && node.op !== "Constant") graph.setEdge(String(from), String(k));
      }
    });
    vendor.dagre.layout(graph);
    const { width, height } = graph.graph();
    const edges = graph.edges().map((edge) => {
      const [first, ...rest] = graph.edge(edge).points.map((p) => `${p.x.toFixed(1)} ${p.y.toFixed(1)}`);
      return `<path class="edge" d="M${first}L${rest.join("L")}"/>`;
    });
    const nodes = graph.nodes().map((id) => {
      const { x, y, width: w } = graph.node(id), node = model.nodes[+id];
      const what = escape([node.name, node.type].filter(Boolean).join(" "));
      return `<g class="n" data-n="${id}" style="--h:${hue([+id])}"><title>${escape(node.loc)}</title>` +
        `<rect x="${x - w / 2}" y="${y - HEIGHT / 2}" width="${w}" height="${HEIGHT}" rx="7"/>` +
        `<text x="${x}" y="${y - 2}">${escape(node.op)}</text><text x="${x}" y="${y + 11}">${what}</text></g>`;
    });
    this.root.innerHTML = `<div class="graph"><svg><g>${edges.join("")}${nodes.join("")}</g></svg></div>` +
      '<div class="zoom"><button data-z="1.25" aria-label="Closer">+</button>' +
      '<button data-z="0.8" aria-label="Further">−</button><button data-z="0" aria-label="All">⤢</button>' +
      '<button data-z="svg" title="Save as SVG" aria-label="Save as SVG">⤓</button></div>';
    this.size = { width: width || 1, height: height || 1 };
    this.top = graph.nodes().map((id) => graph.node(id)).reduce((a, b) => (b.y < a.y ? b : a), { x: 0, y: Infinity }).x;
    if (this.size.width * 0.55 < this.root.clientWidth) this.top = this.size.width / 2;
    this.layer = this.root.querySelector("g");
    this.whole();
    this.follow();
  }

  whole() {
    const box = this.root.getBoundingClientRect();
    const scale = Math.min(1.1, Math.max(0.55, Math.min(box.width / (this.size.width + 40), box.height / (this.size.height + 40))));
    this.place = { scale, x: box.width / 2 - this.top * scale, y: 16 };
    this.move();
  }

  move() {
    const { x, y, scale } = this.place;
    this.layer.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
  }

  // The whole drawing as a file of its own, in the colours that it has now.
  svg() {
    const { width, height } = this.size, copy = this.root.querySelector("svg").cloneNode(true);
    const shown = this.layer.querySelectorAll("*"), made = copy.querySelector("g");
    made.querySelectorAll("*").forEach((to, k) => {
      const now = getComputedStyle(shown[k]);
      for (const name of LOOKS[to.localName] || []) to.setAttribute(name, now.getPropertyValue(name));
      to.removeAttribute("style");
    });
    made.setAttribute("transform", `translate(${EDGE} ${EDGE})`);
    const size = [width + 2 * EDGE, height + 2 * EDGE].map(Math.ceil);
    copy.setAttribute("viewBox", `0 0 ${size.join(" ")}`);
    copy.setAttribute("width", size[0]);
    copy.setAttribute("height", size[1]);
    copy.setAttribute("style", `background:${getComputedStyle(document.body).backgroundColor}`);
    return new XMLSerializer().serializeToString(copy);
  }

  zoom(by, cx, cy) {
    const { place } = this, scale = Math.min(3, Math.max(0.05, place.scale * by));
    place.x = cx - ((cx - place.x) * scale) / place.scale;
    place.y = cy - ((cy - place.y) * scale) / place.scale;
    place.scale = scale;
    this.move();
  }

  follow() {
    const box = this.root.querySelector(".graph");
    let from = null, moved = 0;
    box.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; moved = 0; });
    box.addEventListener("pointermove", (e) => {
      if (!from) return;
      this.place.x += e.clientX - from[0];
      this.place.y += e.clientY - from[1];
      moved += Math.abs(e.clientX - from[0]) + Math.abs(e.clientY - from[1]);
      from = [e.clientX, e.clientY];
      this.move();
    });
    for (const name of ["pointerup", "pointerleave"]) box.addEventListener(name, () => { from = null; });
    box.addEventListener("wheel", (e) => {
      e.preventDefault();
      const at = box.getBoundingClientRect();
      this.zoom(Math.exp(-e.deltaY / 400), e.clientX - at.left, e.clientY - at.top);
    }, { passive: false });
    box.addEventListener("click", (e) => {
      const found = e.target.closest("g.n");
      if (found && moved < 5) light([+found.dataset.n], "graph", model.nodes[+found.dataset.n].op);
    });
    this.root.querySelector(".zoom").addEventListener("click", (e) => {
      if (e.target.dataset.z === "svg") {
        save(this.svg(), `${model.name}.svg`);
        return;
      }
      const by = +e.target.dataset.z, at = box.getBoundingClientRect();
      if (by) this.zoom(by, at.width / 2, at.height / 2);
      else this.whole();
    });
  }

  update() {
    if (!this.layer) return;
    let first = null;
    for (const g of this.root.querySelectorAll("g.n")) {
      const on = isLit([+g.dataset.n]);
      g.classList.toggle("on", on);
      if (on && !first) first = g;
    }
    const box = this.root.getBoundingClientRect();
    if (first && state.from !== "graph" && box.height) {
      const at = first.getBoundingClientRect();
      if (at.top < box.top || at.bottom > box.bottom || at.left < box.left || at.right > box.right) {
        this.place.x += box.left + box.width / 2 - (at.left + at.right) / 2;
        this.place.y += box.top + box.height * 0.35 - (at.top + at.bottom) / 2;
        this.move();
      }
    }
  }
}
