"""The page: one HTML file with its styles, scripts, licences and data inside.

    Exploration(model).write("page.html")

The scripts are ES modules in `static/`, in the order of `SCRIPTS`; here they are joined into one,
without the imports of one another. `vendor.js` is d3-hierarchy and dagre (`make explore-vendor`).
"""

from __future__ import annotations

import base64
import functools
import gzip
import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gradof.errors import InputError
from gradof.runtime.explore.exports import chrome_trace, dot
from gradof.runtime.explore.onnx import onnx_model

SCRIPTS = ("vendor.js", "diff.js", "colour.js", "state.js", "code.js", "graph.js", "panels.js",
           "main.js")  # fmt: skip
_FORMS: dict[str, Callable[[dict[str, Any]], str | bytes]] = {
    ".json": chrome_trace, ".dot": dot, ".onnx": onnx_model
}  # fmt: skip
_IMPORT = re.compile(r'^import [^;]*? from "\./\w+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:(?=(?:const|let|function|class)\b)|\{.*\};$)", re.MULTILINE)


@dataclass(frozen=True)
class Exploration:
    """One compilation as a page: `data` for programs, `html` and `write` for people."""

    data: dict[str, Any]

    @functools.cached_property
    def html(self) -> str:
        """The whole page."""
        page = _static("page.html")
        parts = {
            "title": html.escape(self.data["name"]), "style": _static("page.css"),
            "script": script(), "model": packed(self.data), "licences": _static("LICENCES.txt"),
        }  # fmt: skip
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], page)

    def write(self, path: str | Path) -> Path:
        """Write the page; returns where.

        A name that ends in .json gets a step as a Chrome trace, one in .dot or .onnx the graph
        instead. InputError for another ending, and where what it needs is not there.
        """
        path = Path(path)
        form = form_of(path)
        made = self.html if form is None else form(self.data)
        path.write_bytes(made if isinstance(made, bytes) else made.encode("utf-8"))
        return path

    def _repr_html_(self) -> str:
        """The page within a notebook, in a frame of its own."""
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="gradof explore" '
            'style="width:100%;height:640px;border:0;border-radius:8px"></iframe>'
        )

    def __repr__(self) -> str:
        return (
            f"<Exploration of {self.data['name']}: {len(self.data['nodes'])} nodes, "
            f"{len(self.data['passes'])} passes; .write('page.html')>"
        )


def form_of(path: Path) -> Callable[[dict[str, Any]], str | bytes] | None:
    """What makes a file of this name, None for the page; InputError for an unknown ending."""
    if path.suffix in ("", ".html", ".htm"):
        return None
    if path.suffix not in _FORMS:
        hint = "in the page, Graph saves its drawing as .svg" if path.suffix == ".svg" else None
        raise InputError(f"{path.name} ends in none of .html, {', '.join(_FORMS)}", hint=hint)
    return _FORMS[path.suffix]


def packed(data: dict[str, Any]) -> str:
    """The model as gzipped JSON, in base64; the same for equal models."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def script() -> str:
    """All scripts as one, in strict mode, with nothing global."""
    joined = "\n".join(_EXPORT.sub("", _IMPORT.sub("", _static(name))) for name in SCRIPTS)
    assert "</script" not in joined
    return joined


@functools.cache
def _static(name: str) -> str:
    return resources.files("gradof.runtime.explore").joinpath("static", name).read_text("utf-8")
