"""The result of differentiating a graph, by a worked example.

Take y = tanh(x @ w) with only w requiring grad:

    graph f(%x : f32[4,3], %w : f32[3,2]):
      %h : f32[4,2] = mm(%x, %w)
      %y : f32[4,2] = tanh(%h)
      return (%y)

`differentiate(f, requires_grad=[False, True])` gives

    f:   graph f(%x, %w): %h = mm(%x, %w); %y = tanh(%h); return (%y)
    df:  graph df(%dy : f32[4,2], %x : f32[4,3], %y : f32[4,2]):
           %dh = GradOf[name='tanh'](%dy)   body: mul(%dy, sub(1.0, mul(%y, %y)))
           %dw = GradOf[name='mm'](%dh)     body: mm(permute(%x), %dh)
           return (%dw)
    f_real_outputs = 1
    df_input_vjps = (0,)                 df's first input is the cotangent of f's output 0
    df_input_captured_inputs = (0,)      then f's input 0 (%x)
    df_input_captured_outputs = (0,)     then f's output 0 (%y), which was an output anyway
    df_output_vjps = (1,)                df's output is the gradient of f's input 1 (%w)

Layout, exactly:

    f inputs    unchanged
    f outputs   [the f_real_outputs original outputs] [temporaries: values saved for df]
    df inputs   [cotangents of f outputs, df_input_vjps order: real outputs that require grad,
                 then temporaries that have a gradient]
                [f inputs, df_input_captured_inputs order]
                [f outputs, df_input_captured_outputs order]
    df outputs  one gradient per entry of df_output_vjps

`df_input_vjps` and `df_input_captured_outputs` index f's outputs; `df_input_captured_inputs` and
`df_output_vjps` index f's inputs. An input that the outputs do not depend on differentiably has
no df output.

Temporaries have cotangents of their own, so that f may be differentiated again through what df
saved: in a second backward the gradient flows into the temporaries and from there on through df.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gradof.ir.core import Graph


@dataclass
class Gradient:
    """f, df and the five index lists that join them; see the module docstring."""

    f: Graph
    df: Graph
    f_real_outputs: int
    df_input_vjps: list[int] = field(default_factory=list)
    df_input_captured_inputs: list[int] = field(default_factory=list)
    df_input_captured_outputs: list[int] = field(default_factory=list)
    df_output_vjps: list[int] = field(default_factory=list)

    def _repr_html_(self) -> str:
        from gradof.ir.html import code, framed, side_by_side

        halves = [(f"{g.name}, {len(g.block)} nodes", code(str(g))) for g in (self.f, self.df)]
        saved = len(self.df_input_captured_inputs) + len(self.df_input_captured_outputs)
        what = f"f and df of {self.f.name}, which share {saved} values"
        return framed(what, side_by_side(halves))

    def __str__(self) -> str:
        def row(name: str, values: list[int]) -> str:
            return f"# {name} = ({', '.join(map(str, values))})"

        return "\n".join(
            [
                f"{self.f}\n{self.df}",
                f"# f_real_outputs = {self.f_real_outputs}",
                row("df_input_vjps", self.df_input_vjps),
                row("df_input_captured_inputs", self.df_input_captured_inputs),
                row("df_input_captured_outputs", self.df_input_captured_outputs),
                row("df_output_vjps", self.df_output_vjps),
            ]
        )
