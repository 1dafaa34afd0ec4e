"""Forms of numpy programs that no table has: syntax, views, changes in place, control flow.

What can be said by a table is in `numpy_tables`.
"""

from __future__ import annotations

from gradof.testing.fuzz.forms import blocks, forms

VIEWS = forms(
    "{x:1}[{slice}]", "{x:1}[{slice}]", "{x}.reshape({reshape})", "np.swapaxes({x:2}, {dim}, {dim})",
    "{x}.transpose({perm})", "np.flip({x:1}, {dim})", "np.expand_dims({x}, {of:0|-1})", "{x}.T",
    "np.squeeze({x})", "{x}.ravel()", "{x}.flatten()", "np.broadcast_to({x:1}, {expand})",
    "np.roll({x:1}, {int}, {dim})", "np.moveaxis({x:1}, {dim}, 0)", "{x}[None]", "{x:1}[..., None]",
    "np.diagonal({x:2})", "np.concatenate([{x:1}, {s}], {dim})", "np.stack([{x}, {s}], {of:0|-1})",
    "np.tile({x:1}, 2)", "np.repeat({x:1}, 2, {dim})", "np.pad({x:1}, 1)", "{x}.copy()",
    "np.split({x:1}, [1], {dim})[1]", "np.atleast_2d({x})", "np.ravel({x}, 'F')",
)  # fmt: skip
# Into arrays by `out`, by name and by place, and what follows it by place.
WRITTEN = forms(
    "np.cumsum({x:1}, {dim}, None, np.empty_like({x}))", "np.sum({x:1}, {dim}, None, None, True)",
    "np.clip({x}, -0.5, 0.7, out=np.empty_like({x}))", "np.exp(-np.abs({x}), np.empty_like({x}))",
    "np.sum({x:2}, 0, None, np.empty_like({x}[0]))", "{x:2}.max(0, np.empty_like({x}[0]))",
    "np.dot({x:=2}[:9], {x}[:9].T, out=np.empty(({x}[:9].shape[0],) * 2, {x}.dtype))",
    "np.mean({x:2}, axis=0, out=np.empty_like({x}[0]))", "np.take({x:1}, [0, -1, 0], 0, None)",
    "np.stack([{x}, {s}], out=np.empty((2, *{x}.shape), {x}.dtype))", "np.nan_to_num({x})",
    "np.trace({x:=2}, 1, 0, 1, None, np.empty((), {x}.dtype))", "{x}.round(1, np.empty_like({x}))",
)  # fmt: skip
ARITHMETIC = forms(
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} * {y}", "{x} / (np.abs({y:a}) + 0.5)", "-{x}",
    "{num:f} - {x}", "{num:f} * {x}", "{num:f} / (np.abs({x}) + 0.7)", "{x} ** 2", "{x} ** 3",
    "(np.abs({x}) + 0.1) ** {num:f}", "{pos} ** {x}", "(np.abs({x}) + 0.2) ** {y}", "{x} * {x}",
    "{x} % {pos}", "{x} // {pos}", "abs({x})", "{x} * ({x} > {y})", "{x}.astype(np.float64)",
    "np.maximum({x}, {y})", "np.clip({x}, -0.5, {of:0.7|1.5})", "np.add({x}, {y}, dtype=np.float64)",
    "np.hypot({x}, {s}) + np.sign({x})", "np.where({m}, {x}, {y})", "np.where({m}, {x}, {num:f})",
    "np.select([{x} > 0.5, {x} > 0], [{x} * 2, {s}], {num:f})", "np.piecewise({x:1}, [{x} > 0], [lambda t: t * 2, lambda t: -t])",
)  # fmt: skip
SELECTING = forms(
    "{x:1}[{m:same}]", "{x:1}[{index}]", "{x:1}[{index}, ...]", "{x:2}[:, {index}]",
    "np.take({x:1}, {index:flat})", "np.take({x:1}, {index}, 0)", "np.sort({x:1}, {dim})",
    "np.take_along_axis({x:1}, np.argsort({x}, {dim}, kind='stable'), {of:0|-1})",
    "np.cumsum({x:1}, {dim})",
    "np.cumprod({x:1}, {dim})", "np.tril({x:2}, {int})", "np.triu({x:2}, {int})", "np.diff({x:1}, axis={dim})",
    "{x:1}[np.argmax({x}) % {x}.shape[0]]", "np.compress({x:1}[..., 0] > 0, {x}, 0)", "np.trapezoid({x:1}, axis={dim})",
    "np.interp({x}, [-2.0, -0.3, 0.4, 2.0], [0.0, 1.0, -1.0, 2.0])", "np.convolve({x:=1}, {array:3})",
    "{x:2}[np.ix_([0, -1], [0])]", "{x} * np.isin(np.round({x}), [0, 1])",
    "np.delete({x:1}, 0, {dim})", "np.insert({x:1}, 1, {num:f}, {dim})", "np.resize({x:1}, (2, 3))",
    "{x:1}[np.unravel_index(np.argmax({x}), {x}.shape)]", "np.partition({x:1}, 0, {dim})[..., :1]",
    "np.abs(np.gradient({x:1} + 1j * {x} ** 2, axis=0))", "np.diff({x:1}, 1, {dim}, {num:f})",
    "np.cov({x:=2}[:4, :9] + 1j * np.sin({x}[:4, :9])).real", "np.cov({x:=2}[:4, :9], ddof=0)",
    "np.gradient({x:1}, axis=0)", "np.fft.rfft({x:1}).real", "np.abs(np.fft.fft({x:1}, axis=-1))",
)  # fmt: skip
REDUCING = forms(
    "np.sum({x})", "{x}.mean()", "{x:1}.sum({dim})", "np.sum({x:1}, axis={dims}, keepdims={flag})",
    "np.mean({x:1}, axis={dims}, keepdims={flag})", "np.max({x:1}, axis={dim}, keepdims={flag})",
    "{x:1}.min({dim})", "np.var({x:1}, axis={dims}, keepdims={flag})", "np.std({x:1}, axis={dim})",
    "np.prod({x:1}, axis={dim})", "np.logaddexp.reduce({x:1}, axis={dim})", "np.median({x:1}, axis={dim})",
    "np.linalg.norm({x:1}, axis={dim})", "{x:1} - {x}.mean({dim}, keepdims=True)",
    "np.exp({x:1}) / np.exp({x}).sum({dim}, keepdims=True)", "np.average({x:1}, axis={dim})",
    "np.sum({x:1}, axis={dim}, where={m:same})", "np.add.reduce({x:1}, {dim})", "np.ptp({x:1}, axis={dim})",
    "np.quantile({x:1}, 0.3, axis={dim})", "special.logsumexp({x:1}, axis={dim})",
    "special.softmax({x:1}, axis={dim})", "np.einsum('ij,ij->i', {x:=2}, {s})",
)  # fmt: skip
PRODUCTS = forms(
    "{x:=2} @ {array:S1,?}", "{x:2} @ np.swapaxes({x}[..., :5, :], -1, -2)", "np.dot({x:1}, {array:S-1})",
    "np.matmul({x:=3}, {array:S0,S2,?})", "np.einsum('...i,ij->...j', {x:1}, {array:S-1,?})",
    "np.tensordot({x:2}, {array:S-1,2}, 1)", "np.outer({x:=1}[:9], {x}[:7])", "np.vdot({x:=1}, {s})",
    "np.inner({x:1}, {array:S-1})", "np.kron({x:=1}[:5], {array:3})", "np.cross({x:=2}[:5, :1] + {array:3}, {array:3})",
)  # fmt: skip
_PART = "{x:=2}[:4, :6]"
_SQUARE = f"({_PART}.T @ {_PART} + np.diag(np.arange({_PART}.shape[1]) + 3.0))"
LINALG = forms(
    f"np.linalg.inv{_SQUARE}", f"np.linalg.cholesky{_SQUARE}", f"np.linalg.det{_SQUARE} / 9",
    f"np.linalg.slogdet{_SQUARE}[1]", f"np.linalg.solve({_SQUARE}, {_PART}.T)", f"np.trace{_SQUARE}",
    f"np.linalg.eigvalsh{_SQUARE}", f"np.linalg.svd({_SQUARE}, compute_uv=False)",
    f"np.linalg.matrix_power({_SQUARE} * 0.2, {{of:-1|2|3}})", f"np.linalg.pinv{_SQUARE}",
)  # fmt: skip
IN_PLACE = blocks(
    "{v} += {y:a}", "{v} *= {num:f}", "{v:1}[{slice}] = {num:f}", "{v:1}[{slice}] *= {num:f}",
    "{v:1}[{m:same}] = {num:f}", "{v:1}[{m:same}] *= 2", "{v:1}[{index}] = {num:f}",
    "{v:1}[{index}] += {num:f}", "{v:1}[...] = {y:a}", "np.add({v}, {y:a}, out={v})",
    "np.add.at({v:1}, {index}, {num:f})", "{v:1}[::2] += {v}[{of:0|-1}].mean()", "{v:1}.fill({num:f})",
    "np.cumsum({v:1}, 0, out={v})", "np.clip({v}, -0.5, 0.7, {v})", "np.nan_to_num({v}, copy=False)",
    "np.copyto({v}, {y:a})", "np.fill_diagonal({v:2}, {num:f})", "np.putmask({v}, {v} > 0.3, {num:f})",
    "np.place({v}, {v} > 0.3, [{num:f}, 0.1])", "{v:1}.sort()", "{v:1}[0], {v}[-1] = {v}[-1] * 1, {v}[0] * 1",
    "np.maximum({v:1}[1:], {v}[:-1], out={v}[1:])", "{v:1}[1:] += {v}[:-1]", "{v:2}.flat[::3] = {num:f}",
    "np.multiply({v}, 2, out={v}, where={v} > 0)", "{v:2}.T[0] = {num:f}", "np.put({v:1}, [0], {num:f})",
)  # fmt: skip
CONTROL = blocks(
    "{new} = {x}\nfor i in range({int:2,4}):\n    {new} = np.tanh({new} * {pos} + {s} * i)",
    "{new} = {x}\nfor row in {x:1}[:4]:\n    {new} = {new} * {pos} + np.sum(row)",
    "def inner(t, scale={num:f}):\n    return np.sin(t) * scale + {s}\n{new} = inner({x}) + inner({x} * 2)",
    "{new} = gradof.checkpoint(lambda t: np.exp(np.tanh(t * {pos})) * {s}, {x})",
    "{new} = {x} * 2 if np.sum({x}) > 0 else {x} - 1",
    "{new} = sum([t * (i + 1) for i, t in enumerate([{x}, {s}, {s}])])",
    "{new} = np.zeros_like({x:1})\nfor i in range(min(3, {x}.shape[0])):\n"
    "    {new}[i] = {x}[i] * {pos} + ({new}[i - 1] if i else 0)",
    "parts = {{'a': {x}, 'b': {s}}}\n{new} = parts['a'] * np.sin(parts['b'])",
    "{new} = gradof.grad(lambda t: np.sum(t ** 3 * {s}))({x})",
    "{new} = np.empty_like({x:1})\n{new}[:] = {x} * {num:f}\n{new}[0] = {s}[-1]",
)  # fmt: skip
