// The model, and what is lit: a set of nodes of the trace. Views listen.

const packed = Uint8Array.from(atob(document.getElementById("model").textContent), (c) => c.charCodeAt(0));
const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
export const model = await new Response(unpacked).json();
export const origins = (line) => model.lines[line][1];

// A line as it was printed: with the user's line behind it, where it has one.
export function textOf(line) {
  const [text, nodes, said] = model.lines[line];
  return said && model.nodes[nodes[0]].loc ? `${text}  # ${model.nodes[nodes[0]].loc}` : text;
}

// A hue for each of the user's lines, in the order of the trace, far from its neighbours'.
const hueOfLine = new Map();
const hues = model.nodes.map((node, k) => {
  const place = node.loc || `node ${k}`;
  if (!hueOfLine.has(place)) hueOfLine.set(place, Math.round((205 + hueOfLine.size * 137.508) % 360));
  return hueOfLine.get(place);
});
export const hue = (nodes) => (nodes.length ? hues[nodes[0]] : 220);

export const state = { lit: new Set(), from: "", what: "" };
const listeners = [];
export const listen = (callback) => listeners.push(callback);

// Light nodes up; `from` is the view that was clicked, which stays where it is.
export function light(nodes, from = "", what = "") {
  state.lit = new Set(nodes);
  state.from = from;
  state.what = what;
  document.body.classList.toggle("lit", state.lit.size > 0);
  listeners.forEach((callback) => callback());
}

export const isLit = (nodes) => state.lit.size > 0 && nodes.some((n) => state.lit.has(n));

// How many lines of a view are lit.
export function litLines(view) {
  const found = [];
  if (state.lit.size) view.lines.forEach((line, at) => isLit(origins(line)) && found.push(at));
  return found;
}

export const view = (id) => model.views.find((each) => each.id === id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
