"""`%%gradof`: run a cell, and show f and df of a call of what it defines.

    %load_ext gradof

    %%gradof loss(x, w)
    def loss(x, w):
        return torch.tanh(x @ w).square().mean()

With `--explain` what is saved, with `--trace` the trace, with `--page` all of it as a page. The
call is evaluated after the cell, its arguments in the notebook's own variables.
"""

from __future__ import annotations

import ast
from typing import Any

from gradof.errors import InputError

_SHOWN = {"--explain": "explain", "--trace": "trace", "--page": "explore"}


def register(shell: Any) -> None:
    """Add the magic to an IPython shell."""

    def gradof(line: str, cell: str) -> Any:
        return run_cell(shell, line, cell)

    shell.register_magic_function(gradof, magic_kind="cell", magic_name="gradof")


def run_cell(shell: Any, line: str, cell: str) -> Any:
    """Run a cell and give what its magic's line asks for; InputError for a line without a call."""
    from gradof.api import differentiate

    words = line.split()
    flags = [word for word in words if word.startswith("--")]
    unknown = [flag for flag in flags if flag not in _SHOWN]
    call = _call(" ".join(word for word in words if not word.startswith("--")))
    if call is None or unknown or len(flags) > 1:
        raise InputError(
            f"cannot read %%gradof {line}",
            hint=f"%%gradof loss(x, w), and one of {', '.join(_SHOWN)}",
        )
    code = shell.transform_cell(cell)
    file = shell.compile.cache(code, shell.execution_count, raw_code=cell)  # for its lines
    exec(compile(code, file, "exec"), shell.user_ns)
    space = {**shell.user_ns}
    fn = _value(call.func, space)
    args = [_value(a, space) for a in call.args]
    kwargs = {str(k.arg): _value(k.value, space) for k in call.keywords}
    compiled = differentiate(fn) if not hasattr(fn, "gradient") else fn
    return getattr(compiled, _SHOWN[flags[0]] if flags else "gradient")(*args, **kwargs)


def _call(text: str) -> ast.Call | None:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return tree if isinstance(tree, ast.Call) else None


def _value(node: ast.expr, space: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<%%gradof>", "eval"), space)
