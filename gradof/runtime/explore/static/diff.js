// The shortest edit from one list of lines to another (Myers, 1986), for lists of numbers or strings.

// [[" ", i, j], ["-", i, -1], ["+", -1, j], ...] in order.
export function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  const most = Math.min(before.length, after.length) - start;
  while (end < most && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const a = before.slice(start, before.length - end);
  const b = after.slice(start, after.length - end);
  const made = [];
  for (let i = 0; i < start; i++) made.push([" ", i, i]);
  for (const [sign, i, j] of middle(a, b)) made.push([sign, i < 0 ? i : i + start, j < 0 ? j : j + start]);
  for (let k = end; k > 0; k--) made.push([" ", before.length - k, after.length - k]);
  return made;
}

function middle(a, b) {
  const n = a.length, m = b.length, size = n + m, paths = [];
  const furthest = new Map([[1, 0]]);
  for (let d = 0; d <= size; d++) {
    paths.push(new Map(furthest));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? furthest.get(k + 1) ?? 0 : (furthest.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < n && y < m && a[x] === b[y]) { x++; y++; }
      furthest.set(k, x);
      if (x >= n && y >= m) return back(paths, n, m, d);
    }
    if (d > 600) return [...a.map((_, i) => ["-", i, -1]), ...b.map((_, j) => ["+", -1, j])];
  }
  return [];
}

function back(paths, x, y, d) {
  const made = [];
  for (; d >= 0; d--) {
    const furthest = paths[d], k = x - y;
    const down = k === -d || (k !== d && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const before = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : furthest.get(before) ?? 0, fromY = d === 0 ? 0 : fromX - before;
    while (x > fromX && y > fromY) made.push([" ", --x, --y]);
    if (d > 0) made.push(down ? ["+", -1, --y] : ["-", --x, -1]);
  }
  return made.reverse();
}

// The same with what is far from any change left out: [["…", first, count]] in its place.
export function inContext(edits, around = 3) {
  const near = new Uint8Array(edits.length);
  edits.forEach(([sign], k) => {
    if (sign !== " ") near.fill(1, Math.max(0, k - around), k + around + 1);
  });
  const made = [];
  for (let k = 0; k < edits.length; k++) {
    if (near[k] || edits[k][0] !== " ") made.push(edits[k]);
    else if (made.length && made[made.length - 1][0] === "…") made[made.length - 1][2]++;
    else made.push(["…", edits[k][1], 1]);
  }
  return made;
}
