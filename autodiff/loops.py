"""The reverse of a Loop, which is a Loop that runs the other way.

    %x, %xs = Loop[steps=9, ...](%c, %x0)              # a step: x' = f(c, x); %xs: what it saves
    GradOf(%dx, %dxs):
      %dx0, %dc = Loop[steps=9, backwards=True, ...](%c, %dx, 0, %dxs, %xs)

The body is differentiated as any graph is: what its reverse reads of a step is saved as rows of the
forward, new outputs of the node itself, and read as sequences; constants and sequences are read
again. The cotangent of what is carried is carried, that of a constant is added up, that of a
sequence is stacked. Saved rows have cotangents too: symbolic zeros, until the reverse is
differentiated in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof.autodiff.gradient import Gradient
from gradof.autodiff.requires_grad import needed_in_loop
from gradof.autodiff.step import Step
from gradof.ir.builder import Builder
from gradof.ir.clone import inline
from gradof.ir.core import Graph, Node, Value
from gradof.ir.loop import Loop, add_loop, body_graph, loop_types, set_body
from gradof.ir.types import I64, TensorType, Type


@dataclass
class LoopReverse:
    """How a Loop is reversed, once the node saves what is read.

    `seeded` are the outputs with a cotangent, finals first; `operands` those with a gradient, in
    the order in which `emit` gives them, and `params` what the body reads them as.
    """

    loop: Loop
    step: Graph
    seeded: list[Value]
    operands: list[Value]
    params: list[Value]
    constants: list[Value]
    sequences: list[Value]
    carried: int

    def emit(self, builder: Builder, cotangents: Sequence[Value]) -> list[Value]:
        """Insert the reverse Loop; `cotangents` are those of the `seeded`, in order."""
        count = len(self.step.inputs) - 1 - len(self.constants) - len(self.sequences)
        count -= len(cotangents) - self.carried  # rows; the rest is carried
        summed = self.operands[self.carried : count]
        made = add_loop(
            builder, self.step, self.loop.steps, constants=self.constants,
            initial=[*cotangents[: self.carried], *(zero(builder, v.type) for v in summed)],
            sequences=[*cotangents[self.carried :], *self.sequences],
            backwards=not self.loop.backwards, count=self.loop.count,
        )  # fmt: skip
        return list(made.node.outputs)


def reverse_of_loop(
    node: Node, needs: set[Value], *, nan_safe: bool, memory_budget: float | None
) -> LoopReverse:
    """Differentiate the body, and let the node save what its reverse reads.

    `needs` are the values that require grad; those of the new outputs that do are added.
    """
    from gradof.autodiff.differentiate import differentiate

    loop = Loop(node)
    body = body_graph(loop.body)
    body.nan_safe = nan_safe
    inside = needed_in_loop(loop, needs)
    flags = [p in inside for p in loop.body.params]
    first = 1 + len(loop.constants)
    step = Step(range(first, first + len(loop.initial)))
    gradient = differentiate(body, flags, memory_budget=memory_budget, kernels=True, step=step)
    return _Reversal(loop, gradient, flags).run(needs)


def zero(builder: Builder, type_: Type) -> Value:
    """A symbolic zero."""
    assert isinstance(type_, TensorType)
    return builder.emit("AutogradZero", dtype=type_.dtype, shape=type_.shape, device=type_.device)


class _Reversal:
    def __init__(self, loop: Loop, gradient: Gradient, flags: Sequence[bool]) -> None:
        self.loop = loop
        self.gradient = gradient
        self.first = 1 + len(loop.constants)  # param of the body that is carried first
        self.last = self.first + len(loop.initial)
        self.count = len(loop.initial)
        self.carried = [k for k in range(self.count) if flags[self.first + k]]
        # Carried values whose stack is read: as they come into a step, and as they leave it.
        self.into = [
            i - self.first for i in gradient.df_input_captured_inputs
            if self.first <= i < self.last
        ]  # fmt: skip
        self.captured = [self.as_row(o) for o in gradient.df_input_captured_outputs]
        self.out_of = [o for o in self.captured if o < self.count]

    def run(self, needs: set[Value]) -> LoopReverse:
        self.save()
        seeded = [self.loop.node.outputs[o] for o in self.seeded_stacks()]
        needs.update(seeded)
        gradient, loop = self.gradient, self.loop
        grads = gradient.df_output_vjps
        summed = [i - 1 for i in grads if 1 <= i < self.first]
        stacked = [i - self.last for i in grads if i >= self.last]
        inputs = gradient.df_input_captured_inputs
        return LoopReverse(
            loop=loop,
            step=self.step(),
            seeded=[*(loop.finals[k] for k in self.carried), *seeded],
            operands=[
                *(loop.initial[k] for k in self.carried), *(loop.constants[k] for k in summed),
                *(loop.sequences[k] for k in stacked),
            ],
            params=[
                *(loop.carried_params[k] for k in self.carried),
                *(loop.constant_params[k] for k in summed),
                *(loop.row_params[k] for k in stacked),
            ],
            constants=[loop.constants[i - 1] for i in inputs if 1 <= i < self.first],
            sequences=[
                *(loop.node.outputs[o] for o in self.saved_stacks()),
                *(loop.sequences[i - self.last] for i in inputs if i >= self.last),
            ],
            carried=len(self.carried),
        )  # fmt: skip

    def as_row(self, output: int) -> int:
        """The number of an output of the body, of a row where it is one as well."""
        outputs = self.gradient.f.outputs
        same = (o for o in range(self.count, len(outputs)) if outputs[o] is outputs[output])
        return next(same, output)

    def save(self) -> None:
        """Give the node the outputs that its reverse reads, after those that it has."""
        node, f = self.loop.node, self.gradient.f
        before = len(node.outputs)
        into = [f.inputs[self.first + k] for k in self.into]
        f.set_outputs([*f.outputs, *into, *(f.outputs[k] for k in self.out_of)])
        set_body(node, f)
        for type_, value in zip(loop_types(node)[before:], f.outputs[before:], strict=True):
            node.add_output(type_, value.hint)

    @property
    def extra(self) -> int:
        """The first output that is a stack of what is carried."""
        return len(self.loop.node.outputs) - len(self.into) - len(self.out_of)

    def stack_into(self, k: int) -> int:
        """The output that has what comes into each step as carried value k."""
        return self.extra + self.into.index(k)

    def stack_out_of(self, k: int) -> int:
        """The output that has what leaves each step as carried value k."""
        return self.extra + len(self.into) + self.out_of.index(k)

    def seeded_stacks(self) -> list[int]:
        """Stacks that have a cotangent, as numbers of outputs."""
        outputs = self.loop.node.outputs
        rows = [o for o in self.gradient.df_input_vjps if o >= self.count]
        rows += [self.stack_into(k) for k in self.into if k in self.carried]
        rows += [self.stack_out_of(k) for k in self.out_of if k in self.carried]
        return [o for o in rows if outputs[o].is_inexact]

    def saved_stacks(self) -> list[int]:
        """Stacks that the reverse reads, in the order in which `arguments` takes them."""
        rows = [self.stack_into(k) for k in self.into]
        return [*rows, *(self.stack_out_of(o) if o < self.count else o for o in self.captured)]

    def step(self) -> Graph:
        """A step of the reverse: index; constants; cotangents; sums; rows → the same."""
        gradient, loop = self.gradient, self.loop
        step = Graph("step")
        block = step.block

        def params(values: Sequence[Value], prefix: str = "") -> list[Value]:
            return [block.add_param(v.type, v.hint and prefix + v.hint) for v in values]

        f, df = gradient.f, gradient.df
        index = block.add_param(TensorType(I64, ()), "t")
        inputs = gradient.df_input_captured_inputs
        grads = gradient.df_output_vjps
        constants = params([f.inputs[i] for i in inputs if 1 <= i < self.first])
        cotangents = params([loop.finals[k] for k in self.carried], "d")
        sums = params([f.inputs[i] for i in grads if 1 <= i < self.first], "d")
        seeds = dict(zip(self.seeded_stacks(), params(self.rows(self.seeded_stacks()), "d"),
                         strict=True))  # fmt: skip
        saved = params(self.rows(self.saved_stacks()))
        rows = params([f.inputs[i] for i in inputs if i >= self.last])
        builder = Builder(block)
        into = dict(zip(self.carried, cotangents, strict=True))
        for k in self.out_of:
            if k in into and self.stack_out_of(k) in seeds:
                into[k] = builder.emit("AutogradAdd", into[k], seeds[self.stack_out_of(k)])
        given = [into[o] if o < self.count else seeds[o] for o in gradient.df_input_vjps]
        by_input = {0: index}
        by_input |= dict(zip([i for i in inputs if 1 <= i < self.first], constants, strict=True))
        by_input |= {self.first + k: v for k, v in zip(self.into, saved, strict=False)}
        by_input |= dict(zip([i for i in inputs if i >= self.last], rows, strict=True))
        given += [by_input[i] for i in inputs]
        given += saved[len(self.into) :]
        values = inline(df.block, given, block, block.returns)
        found = dict(zip(grads, values, strict=True))
        step.set_outputs(self.results(found, into, sums, seeds, builder))
        return step

    def results(
        self, found: dict[int, Value], into: dict[int, Value], sums: Sequence[Value],
        seeds: dict[int, Value], builder: Builder,
    ) -> list[Value]:  # fmt: skip
        """Cotangents of what came into the step, sums, and gradients of rows."""
        carried = []
        for k in self.carried:
            grad = found.get(self.first + k) or zero(builder, into[k].type)
            if k in self.into and self.stack_into(k) in seeds:
                grad = builder.emit("AutogradAdd", grad, seeds[self.stack_into(k)])
            carried.append(grad)
        added = [
            builder.emit("AutogradAdd", total, found[i])
            for total, i in zip(sums, [i for i in found if 1 <= i < self.first], strict=True)
        ]
        return [*carried, *added, *(v for i, v in found.items() if i >= self.last)]

    def rows(self, outputs: Sequence[int]) -> list[Value]:
        """The results of the body that are stacked as these outputs."""
        return [self.loop.body.results[o] for o in outputs]
