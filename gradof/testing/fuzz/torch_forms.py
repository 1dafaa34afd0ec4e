"""Forms of torch programs that no table has: syntax, views, changes in place, control flow.

What can be said by a table is in `torch_tables`.
"""

from __future__ import annotations

from gradof.testing.fuzz.forms import Form, blocks, forms

F = "torch.nn.functional"
VIEWS = forms(
    "{w:1}[{slice}]", "{x:1}[{slice}]", "{x:1}[{slice}]", "{x}.reshape({reshape})",
    "{x:2}.transpose({dim}, {dim})", "{x:1}.permute({perm})", "{x:1}.flip({dim})",
    "{x}.unsqueeze({of:0|-1})", "{w}.squeeze()", "{x:1}.unfold({dim}, {int:1,2}, {int:1,2})",
    "{x:1}.select({dim}, {int:-1,0})", "{x:2}.diagonal({int:-1,1})", "{x:1}.expand({expand})",
    "{x:1}.roll({int}, {dim})", "{x}.view(-1)", "{x:2}.mT", "{x:1}.narrow({dim}, 0, 1)",
    "{x}.flatten()", "{x:1}.movedim({dim}, 0)", "{x}[None]", "{x:1}[..., None]",
    "{x:1}.repeat(({int:1,2},) * {x}.dim())", "{x}.contiguous()", "{x}.clone()", "{x}.detach()",
    "torch.cat([{x:1}, {s}], {dim})", "torch.stack([{x}, {s}], {of:0|-1})", "{z}.real", "{z}.imag",
    "{z}.conj()", "torch.view_as_real({z})", "torch.complex({x}, {s})",
    "torch.nn.functional.pad({x:1}, ({int:-1,2}, {int:0,2}))",
)  # fmt: skip
VIEWS += (
    Form("{x:1}.chunk(2, {dim})", outputs=2), Form("{x:1}.split([1, {x}.shape[0] - 1])", outputs=2),
    Form("{x:1}.unbind({dim})[:2]", outputs=2), Form("torch.broadcast_tensors({x}, {y:a})", outputs=2),
)  # fmt: skip
ARITHMETIC = forms(
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} * {y}", "{x} / (({y:a}).abs() + 0.5)", "-{x}",
    "{num:f} - {x}", "{num:f} * {x}", "{num:f} / ({x}.abs() + 0.7)", "{x} ** 2", "{x} ** 3",
    "({x}.abs() + 0.1) ** {num:f}", "{pos} ** ({x} + 0.013)", "{x} * {x}",
    "({x}.abs() + 0.2) ** ({y} + 0.013)",  # beside 0: eager has half of a mixed derivative there
    "{z} * {y}", "{z} + {num}", "{z} * 1j", "{z} / (2 + {z}.abs())", "{k} + {y}", "{k} * {num}",
    "{k} // 2", "{k} % 3", "{k} & 3", "{x} * {k}", "~{b}", "{b} & {m}", "{b} | {m}", "{x} * {b}",
    "{x} % {pos}", "{x} // {pos}", "{x}.to({type})", "{k}.to({type:f})", "{b}.to({type:f})",
    "({x} > {y})", "({x} <= {y})", "({x} == {s})", "torch.lerp({x}, {s}, {num:f})",
    "torch.addcmul({x}, {s}, {s}, value={num:f})", "{x}.abs()", "{z}.abs()",
    "torch.addcdiv({x}, {s}, {s}.abs() + 0.5, value={num:f})",
)  # fmt: skip
SELECTING = forms(
    "torch.where({m}, {x}, {y})", "torch.where({m}, {x}, {num:f})", "{x}.masked_fill({m}, {num:f})",
    "{x:1}[{m:same}]", "{x:1}[{index}]", "{x:1}[{index}, ...]", "{x:2}[:, {index}]",
    "{x:1}.index_select({dim}, {index} % {x}.shape[{dim}])", "{x:1}.gather({dim}, {index:same})",
    "torch.take({x:1}, {index:flat})", "{x:1}.index_add(0, {index:add}.abs() % {x}.shape[0], {picked})",
    "{x:1}.scatter({dim}, {index:same}.abs(), {s})", "{x:1}.scatter_add({dim}, {index:same}.abs(), {s})",
    "{x:1}.scatter_reduce({dim}, {index:same}.abs(), {s}, '{of:sum|prod|mean}', include_self={flag})",
    "{x:1}.scatter_reduce({dim}, {index:same}.abs(), {s}, '{of:amax|amin}')",
    "{x:1}.index_put(({index},), {num:f} * torch.ones((), dtype={x}.dtype), accumulate={flag})",
    "{x:1}.sort({dim}, descending={flag}).values", "{x:1}.cummax({dim}).values",
    "{x:1}.topk(1, {dim}).values", "{x:1}.cumsum({dim})", "{x:1}.cumprod({dim})",
    "{x:1}.logcumsumexp({dim})", "{x:2}.tril({int})", "{x:2}.triu({int})", "{x:1}.argmax({dim})",
    "torch.nn.functional.one_hot({index:flat}, {size}).to({x:1}.dtype) * {x}",
    "{x:1}.take_along_dim({x}.argsort({dim}), {dim})", "{x:1}.contiguous().median({dim}).values",
    "{x:1}.masked_select({m})", "{x:1}[{x}.argmax() % {x}.shape[0]]", "{x:1}.nonzero()",
    "torch.searchsorted(torch.linspace(-1, 1, 5, dtype={x:1}.dtype), {x}.contiguous())",
)  # fmt: skip
REDUCING = forms(
    "{x}.sum()", "{x}.mean()", "{x:1}.sum({dim})", "{x:1}.sum({dims}, keepdim={flag})",
    "{x:1}.mean({dims}, keepdim={flag})", "{x:1}.mean({dim})", "{x:1}.amax({dims}, keepdim={flag})",
    "{x:1}.amin({dim}, keepdim={flag})", "{x:1}.max({dim}).values", "{x}.max()",
    "{x:1}.var({dims}, keepdim={flag}, correction={int:0,1})", "{x:1}.std({dim})",
    "{x:1}.prod({dim})", "{x:1}.logsumexp({dims}, keepdim={flag})", "{x:1}.norm(dim={dim})",
    "torch.linalg.vector_norm({x:1}, {of:1|2|3|inf|0.5}, {dims}, keepdim={flag})",
    "{x:1}.softmax({dim})", "{x:1}.softmax({dim})", "{x:1}.log_softmax({dim})",
    "{x:1} - {x}.mean({dim}, keepdim=True)", "{x:1} / ({x}.norm(dim={dim}, keepdim=True) + 0.1)",
    "torch.nn.functional.layer_norm({x:1}, {x}.shape[-1:])",
    "torch.nn.functional.layer_norm({x:1}, {x}.shape[-1:], {array:S-1}, {array:S-1})",
    "torch.nn.functional.normalize({x:1}, dim={dim})", "{x:1}.any({dim})", "({x:1} > 0).sum({dim})",
    "torch.nn.functional.glu(torch.cat([{x:1}, {s}], -1))",
    "torch.nn.functional.rms_norm({x:1}, {x}.shape[-1:])", "{x:1}.count_nonzero({dim})",
    "torch.nn.functional.mse_loss({x}, {s}, reduction='{of:mean|sum|none}')",
    "torch.nn.functional.smooth_l1_loss({x}, {s}, reduction='{of:mean|none}')",
    "torch.nn.functional.cross_entropy({x:=2}, {index:flat}.new_zeros({x}.shape[0]))",
    "{z}.sum()", "{z:1}.mean({dim})",
)  # fmt: skip
PRODUCTS = forms(
    "{x:=2} @ {array:S1,?}", "{x:=3} @ {array:S2,?}", "{x:2} @ {x}[..., :5, :].mT", "{x:1} @ {array:S-1}",
    "torch.bmm({x:=3}, {array:S0,S2,?})", "torch.einsum('...i,ij->...j', {x:1}, {array:S-1,?})",
    "torch.einsum('ij,kj->ik', {x:=2}, {array:?,S1})", "{z:=2} @ {array:S1,?}",
    "torch.nn.functional.linear({x:1}, {array:3,S-1}, {array:3})",
    "torch.nn.functional.linear({x:=2}.tanh(), {array:4,S1})",
    "torch.outer({x:=1}[:9], {x}[:7])", "torch.addmm({array:S0,3}, {x:=2}, {array:S1,3}, beta={num:f})",
    "torch.baddbmm({array:S0,S1,2}, {x:=3}, {array:S0,S2,2}, alpha={num:f})",
    "torch.nn.functional.bilinear({x:=2}[:, :1], {s}, {array:2,1,S1})", "torch.dot({x:=1}, {s})",
    "torch.nn.functional.conv1d({x:=3}, {array:2,S1,2}, {array:2}, stride={int:1,2}, padding={int:0,1})",
    "torch.nn.functional.conv2d({x:=4}, {array:3,S1,2,2}, padding={int:0,1}, dilation={int:1,2})",
    "torch.nn.functional.conv2d({x:=4}, {array:S1,1,3,1}, None, {int:1,2}, 1, 1, {size:1})",
    # torch's writes past its memory in bfloat16 with thousands of channels (2.13)
    "torch.nn.functional.conv_transpose1d({x:=3}[:, :99], {array:S1,2,3}[:99], stride={int:1,2})",
    "torch.nn.functional.max_pool2d({x:=4}, 2, {int:1,2}, 1)",
    "torch.nn.functional.avg_pool2d({x:=4}, 2, {int:1,2}, 1, count_include_pad={flag})",
    "torch.nn.functional.max_pool1d({x:=3}, 2, {int:1,2})",
    "torch.nn.functional.adaptive_avg_pool1d({x:=3}, {int:1,3})",
    "torch.nn.functional.interpolate({x:=3}, scale_factor=2)",
    "torch.nn.functional.scaled_dot_product_attention({x:=3}[:, :40], {s}[:, :30], {s}[:, :30])",
    "torch.nn.functional.batch_norm({x:=3}, None, None, {array:S1}, {array:S1}, True)",
    "torch.nn.functional.group_norm({x:=3}, 1, {array:S1}, {array:S1})",
    "torch.nn.functional.instance_norm({x:=3})", "torch.cdist({x:=2}[:9], {array:3,S1})",
    "torch.nn.functional.embedding({index:flat}.abs() % {x:=2}.shape[0], {x})",
)  # fmt: skip
_PART = "{x:=2}[:4, :6]"
_SQUARE = f"({_PART}.mT @ {_PART} + torch.arange(3, 3 + {_PART}.shape[1], dtype={{x}}.dtype).diag())"
LINALG = forms(
    f"torch.linalg.inv{_SQUARE}", f"torch.linalg.cholesky{_SQUARE}", f"torch.linalg.det{_SQUARE} / 9",
    f"torch.linalg.slogdet{_SQUARE}[1]", f"torch.linalg.solve({_SQUARE}, {_PART}.mT)",
    f"torch.linalg.eigvalsh{_SQUARE}", f"torch.linalg.svdvals{_SQUARE}",
    f"torch.linalg.matrix_exp({_SQUARE} * 0.1)", f"torch.linalg.qr{_SQUARE}[1]",
    f"torch.linalg.matrix_power({_SQUARE} * 0.2, {{of:-1|2|3}})", f"torch.trace{_SQUARE}",
    f"torch.linalg.solve_triangular(torch.tril{_SQUARE}, {_PART}.mT, upper=False)",
    f"torch.linalg.pinv{_SQUARE}",
    weight=0.5,
)  # fmt: skip
IN_PLACE = blocks(
    "{v}.add_({y:a})", "{v}.mul_({num})", "{v}.tanh_()", "{v} += {y:a}", "{v} *= {y:f}",
    "{v:1}[{slice}] = {num}", "{v:1}[{slice}] *= {num}", "{v:1}[{slice}] += {v}[{of:0|-1}].mean()",
    "{v:1}[{m:same}] = {num}", "{v:1}[{m:same}] *= 2", "{v}.clamp_({of:-1.0|-0.3}, {of:0.5|1.0})",
    "{v:1}[{index}] = {num}", "{v:1}[{index}] += {num}", "{v}.masked_fill_({m}, {num:f})",
    "{v:1}.transpose(0, -1).mul_({num})", "{v:1}.copy_({y:a})", "{v:1}[0].zero_()",
    "{v:1}.select(0, 0).fill_({num})", "{v:1}.index_fill_(0, {index}.abs() % {v}.shape[0], {num:f})",
    "{v}.sub_({y:a}, alpha={num:f})", "{v:2}.diagonal().add_({num:f})", "{v}.exp_()", "{v}.neg_()",
    "{v:1}.scatter_(0, {index:same}.abs(), {num:f})", "{v}.relu_()", "{v}.sigmoid_()",
    "with torch.no_grad():\n    {v}.mul_(0.5)", "{v:1}.squeeze_()",
    "{v:1}.cumsum_({dim})", "{v}.pow_(2)", "{v}.detach().add_(1)",
    weight=0.9,
)  # fmt: skip
CONTROL = blocks(
    "{new} = {x}\nfor i in range({int:2,4}):\n    {new} = torch.tanh({new} * {pos} + {s} * i)",
    "{new} = {x}\nfor row in {x:1}.unbind(0)[:4]:\n    {new} = {new} * {pos} + row.sum()",
    "def inner(t, scale={num:f}):\n    return torch.sin(t) * scale + {s}\n{new} = inner({x}) + inner({x} * 2)",
    "{new} = gradof.checkpoint(lambda t, s: torch.tanh(t * {pos}).exp() * s, {x} * 1, {s} * 1)",
    "{new} = {x} * 2 if {x}.sum() > 0 else {x} - 1", "{new} = {x} * float({s}.detach().mean())",
    "{new} = {x} * {x}.shape[0] if {x}.dim() else {x} + {x}.numel()",
    "{new} = sum([t * (i + 1) for i, t in enumerate([{x}, {s}, {s}])])",
    "{new} = torch.zeros_like({x:1})\nfor i in range(min(3, {x}.shape[0])):\n"
    "    {new}[i] = {x}[i] * {pos} + ({new}[i - 1] if i else 0)",
    "parts = {{'a': {x}, 'b': {s}}}\n{new} = parts['a'] * parts['b'].sin()",
    "{new} = torch.func.vmap(lambda row: row * row.sum())({x:1}[:40])",
    "with torch.no_grad():\n    scale = {x}.abs().mean()\n{new} = {x} * scale",
    "{new} = torch.autograd.grad(({x} ** 3).sum(), {x}, create_graph=True)[0]",
    weight=0.6,
)  # fmt: skip
RANDOM = forms(
    "torch.nn.functional.dropout({x}, {of:0.1|0.5})", "{x} + torch.randn_like({x})",
    "{x} * torch.rand({x}.shape)", "torch.bernoulli(torch.sigmoid({x}))", weight=0.3,
)  # fmt: skip
ALL = (*VIEWS, *ARITHMETIC, *SELECTING, *REDUCING, *PRODUCTS, *IN_PLACE, *CONTROL)
