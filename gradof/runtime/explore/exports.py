"""What other viewers read: a step as a Chrome trace (Perfetto), the trace for Graphviz and Netron.

All are made of the model of a page, so that they say what the page says.
"""

from __future__ import annotations

import json
from typing import Any

from gradof.errors import InputError


def chrome_trace(data: dict[str, Any]) -> str:
    """f and then df, a slice for each statement; InputError where nothing was timed."""
    if data["time"] is None:
        raise InputError("nothing was timed", hint="explore without --no-time")
    events: list[dict[str, Any]] = []
    at = 0.0
    for row in data["time"]["rows"]:
        text, origins, _ = data["lines"][row["line"]]
        places = dict.fromkeys(data["nodes"][n]["loc"] for n in origins)
        events.append({
            "name": row["text"], "cat": row["part"], "ph": "X", "pid": 1, "tid": 1,
            "ts": round(1e6 * at, 3), "dur": round(1e6 * row["seconds"], 3),
            "args": {"statement": text.strip(), "lines": [p for p in places if p],
                     "bytes": row["bytes"], "operations": row["operations"],
                     "at the machine's speeds, µs": round(1e6 * row["best"], 3)},
        })  # fmt: skip
        at += row["seconds"]
    events.append({"name": "process_name", "ph": "M", "pid": 1, "tid": 1,
                   "args": {"name": f"gradof: {data['name']}"}})  # fmt: skip
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1)


def dot(data: dict[str, Any]) -> str:
    """The trace, without its constants."""
    lines = [f"digraph {json.dumps(data['name'])} {{", '  node [shape=box, fontname="monospace"];']
    nodes = data["nodes"]
    shown = [k for k, node in enumerate(nodes) if node["op"] != "Constant"]
    for k in shown:
        node = nodes[k]
        what = " ".join(filter(None, (node["name"], node["type"])))
        label = json.dumps(f"{node['op']}\n{what}", ensure_ascii=False)
        lines.append(f"  n{k} [label={label}, tooltip={json.dumps(node['loc'])}];")
    for k in shown:
        reads = dict.fromkeys(n for n in nodes[k]["reads"] if nodes[n]["op"] != "Constant")
        lines += [f"  n{n} -> n{k};" for n in reads]
    return "\n".join([*lines, "}"]) + "\n"
