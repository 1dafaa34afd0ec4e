// Text as HTML: words of the IR, of Python and of LLVM in their colours.

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
export const escape = (text) => text.replace(/[&<>"]/g, (c) => ESCAPES[c]);

const IR = /(#.*$)|('[^']*')|(%[\w.]+)|\b((?:bool|bf16|[iufc]\d+)(?:\[[\d,*]*\](?:@[\w:]+)?)?)|(?<== )([A-Za-z_]\w*)|\b(graph|nest|return|block|over|rows|columns|in|out|held|body|end|store|fold)\b|(-?\b\d[\d.e+-]*\b)/g;
const PYTHON = /(#.*$)|("""[^]*?"""|"[^"]*"|'[^']*')|(@[\w.]+)|\b(np(?:\.\w+)*|torch(?:\.\w+)*|tl(?:\.\w+)*)|\b(\w+)(?=\()|\b(def|return|import|from|as|for|in|if|else|elif|while|with|not|and|or|is|None|True|False|class|lambda|del|global|assert|raise|yield|try|except)\b|\b(\d[\d._]*(?:e[+-]?\d+)?)\b/g;
const LLVM = /(;.*$)|("[^"]*")|(%[\w.]+|@[\w.]+)|\b(i\d+|float|double|half|ptr|void|<\d+ x [\w]+>)|(?<== )([a-z]+)|\b(define|declare|br|ret|store|label|call)\b|(-?\b\d[\d.e+-]*\b)/g;
const CLASSES = ["c", "s", "v", "ty", "o", "w", "m"];
const RULES = { ir: IR, python: PYTHON, llvm: LLVM };

export function coloured(text, language) {
  const rule = RULES[language];
  if (!rule) return escape(text);
  let made = "", last = 0;
  for (const match of text.matchAll(rule)) {
    const k = match.slice(1).findIndex((part) => part !== undefined);
    made += escape(text.slice(last, match.index));
    let word = match[0];
    // a line of the user's is said by the end of its path
    if (k === 0) word = word.replace(/(# )\S*\/([^/\s]+:\d+)/, "$1$2");
    made += `<span class="${CLASSES[k]}">${escape(word)}</span>`;
    last = match.index + match[0].length;
  }
  return made + escape(text.slice(last));
}

export function bytes(n) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (n >= size) return `${(n / size).toFixed(n / size < 10 ? 2 : 1)} ${unit}`;
  }
  return `${n} B`;
}

export function seconds(t) {
  if (t >= 1) return `${t.toFixed(2)} s`;
  return t >= 1e-3 ? `${(1e3 * t).toFixed(2)} ms` : `${(1e6 * t).toFixed(1)} µs`;
}
