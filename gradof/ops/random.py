"""Random tensors. They draw from the generator that the caller's library would draw from.

With torch's arrays that is torch's default generator of the device, by the very call that eager
makes, so one seed gives one result; with numpy's it is numpy's global state (`np.random.seed`).
No gradient flows through a draw. Nodes are never merged, dropped or computed twice: each draw
moves the generator on.

>>> F.bernoulli.with_emitter(e)(p=0.9, shape=(4, 3), dtype=F32, device="cpu")   # a dropout mask
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import CodegenError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import BOOL, F64, I64, DType, TensorType, Type
from gradof.ops.expr import Expr, zeros_for
from gradof.ops.families import int_tuple, known_shape, same_as_first, tensor
from gradof.ops.opaque import by_torch
from gradof.ops.registry import Family, Refused, op

Array = NDArray[Any]
Ints = tuple[int, ...]
EMPTY = "torch.empty({shape}, dtype=to_torch({dtype}), device={device})"


def _drawn(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dt, device = attrs["dtype"], attrs["device"]
    if not isinstance(dt, DType) or not isinstance(device, str):
        raise InferenceError("a random tensor needs a dtype and a device")
    return (TensorType(dt, int_tuple(attrs["shape"], "shape"), device),)


def _infer_in_order(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (drawn,) = _drawn(inputs, attrs)
    order = int_tuple(attrs["order"], "order")
    shape = known_shape(tensor(drawn))
    if sorted(order) != list(range(len(shape))):
        raise InferenceError(f"{order} is no order of {len(shape)} dims")
    return (tensor(drawn).with_shape(tuple(shape[d] for d in order)),)


RANDOM = frozenset({"random"})
DRAWN = Family(_drawn, RANDOM)

# Bound at each draw: a program may replace numpy's global state.


def _np_bernoulli(*, p: float, shape: Ints, dtype: Any, device: str) -> Array:
    return np.asarray(np.random.random_sample(shape) < p).astype(dtype)


def _np_uniform(*, low: float, high: float, shape: Ints, dtype: Any, device: str) -> Array:
    return np.asarray(np.random.uniform(low, high, shape)).astype(dtype)


def _np_normal(*, mean: float, std: float, shape: Ints, dtype: Any, device: str) -> Array:
    return np.asarray(np.random.normal(mean, std, shape)).astype(dtype)


def _np_normal_in_order(
    *, mean: float, std: float, order: Ints, shape: Ints, dtype: Any, device: str
) -> Array:
    return np.asarray(np.random.normal(mean, std, [shape[d] for d in order])).astype(dtype)


def _np_exponential(*, rate: float, shape: Ints, dtype: Any, device: str) -> Array:
    return np.asarray(np.random.exponential(1.0 / rate, shape)).astype(dtype)


def _np_randint(*, low: int, high: int, shape: Ints, dtype: Any, device: str) -> Array:
    # Integers take the path that `np.random.randint(low, high, shape)` takes; others are cast.
    kind = dtype if np.dtype(dtype).kind in "iu" else np.int64
    return np.asarray(np.random.randint(low, high, shape, dtype=kind)).astype(dtype)


def _np_randperm(*, n: int, dtype: Any, device: str) -> Array:
    return np.random.permutation(n).astype(dtype)


op("bernoulli(; p, shape, dtype, device) -> y", family=DRAWN, numpy=_np_bernoulli,
   torch=EMPTY + ".bernoulli_({p})", doc="1 with probability p, else 0.")
op("uniform(; low, high, shape, dtype, device) -> y", family=DRAWN, numpy=_np_uniform,
   torch=EMPTY + ".uniform_({low}, {high})", doc="rand is uniform(0, 1).")
op("normal(; mean, std, shape, dtype, device) -> y", family=DRAWN, numpy=_np_normal,
   torch=EMPTY + ".normal_({mean}, {std})", doc="randn is normal(0, 1).")
op("normal_in_order(; mean, std, order, shape, dtype, device) -> y",
   family=Family(_infer_in_order, RANDOM), numpy=_np_normal_in_order,
   torch="torch.empty_permuted({shape}, {order}, dtype=to_torch({dtype}), device={device})"
         ".normal_({mean}, {std}).permute({order})",
   doc="Drawn for a tensor of this shape whose dims lie in memory in this order, outermost first, "
       "and given in that order: torch draws normal numbers of such memory by other steps.")
op("exponential(; rate, shape, dtype, device) -> y", family=DRAWN, numpy=_np_exponential,
   torch=EMPTY + ".exponential_({rate})")
op("randint(; low, high, shape, dtype, device) -> y", family=DRAWN, numpy=_np_randint,
   torch="torch.randint({low}, {high}, {shape}, dtype=to_torch({dtype}), device={device})",
   doc="Integers in low..high-1.")


def _infer_by(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    p = tensor(inputs[0])
    if p.shape != () or p.dtype != F64 or p.device != "cpu":
        raise InferenceError(f"a probability is a f64[] on the CPU, not {p}")
    return _drawn(inputs, {**attrs, "device": "cpu"})


op("bernoulli_by(p; shape, dtype) -> y", family=Family(_infer_by, RANDOM),
   numpy=lambda p, *, shape, dtype: np.asarray(np.random.random_sample(shape) < p).astype(dtype),
   torch="torch.empty({shape}, dtype=to_torch({dtype})).bernoulli_(float({p}))", vjp={"p": None},
   doc="1 with a probability that is known when it runs, else 0.")


def _infer_mask(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (drawn,) = _drawn(inputs, attrs)
    return (tensor(drawn).with_dtype(BOOL),)


op("dropout_mask(; p, shape, dtype, device) -> mask", family=Family(_infer_mask, RANDOM),
   numpy=lambda *, p, shape, dtype, device: np.asarray(np.random.random_sample(shape) >= p),
   torch="torch.native_dropout(" + EMPTY + ", {p}, True)[1]",
   doc="Where dropout keeps an element of a tensor of this dtype; drawn as CUDA devices draw it.")


def _infer_randperm(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return _drawn(inputs, {**attrs, "shape": (attrs["n"],)})


op("randperm(; n, dtype, device) -> y", family=Family(_infer_randperm, RANDOM),
   numpy=_np_randperm, torch="torch.randperm({n}, dtype=to_torch({dtype}), device={device})")


def _np_bernoulli_like(p: Array) -> Array:
    return np.asarray(np.random.random_sample(p.shape) < p).astype(p.dtype)


op("bernoulli_like(p) -> y", family=Family(same_as_first().infer, RANDOM),
   numpy=_np_bernoulli_like, torch="torch.bernoulli",
   # not None: eager's result requires grad, with gradient zero
   vjp={"p": zeros_for}, doc="1 with the probability given for each element.")


op("poisson(rate) -> y", family=Family(same_as_first().infer, RANDOM),
   numpy=lambda rate: np.asarray(np.random.poisson(rate)).astype(rate.dtype),
   torch="torch.poisson", vjp={"rate": zeros_for}, doc="Counts, of the same dtype as their rates.")


NO_GRADIENT = Refused("torch's autograd has no gradient of it either")


def _np_binomial(count: Array, p: Array) -> Array:
    return np.asarray(np.random.binomial(count.astype(np.int64), p)).astype(count.dtype)


op("binomial(count, p) -> y", family=Family(same_as_first().infer, RANDOM), numpy=_np_binomial,
   torch="torch.binomial", vjp={"count": NO_GRADIENT, "p": NO_GRADIENT},
   doc="How many of `count` trials succeed, each with probability p.")


# As in torch, draws of the gamma distribution have a gradient: with the numbers that they are made
# of held fixed (implicit reparametrisation). It is torch's own, to the last bit.


def _gamma_rule(g: Expr, alpha: Expr, y: Expr) -> Expr:
    return g * by_torch("aten::_standard_gamma_grad", alpha, y)


op("standard_gamma(alpha) -> y", family=Family(same_as_first().infer, RANDOM),
   numpy=lambda alpha: np.asarray(np.random.standard_gamma(alpha)).astype(alpha.dtype),
   torch="torch._standard_gamma", vjp={"alpha": _gamma_rule},
   doc="Draws of the gamma distribution of these shapes, and of rate 1.")


def _np_dirichlet(alpha: Array) -> Array:
    y = np.random.standard_gamma(alpha)
    return np.asarray(y / y.sum(-1, keepdims=True)).astype(alpha.dtype)


op("dirichlet(alpha) -> y", family=Family(same_as_first().infer, RANDOM), numpy=_np_dirichlet,
   torch="torch._sample_dirichlet", vjp={"alpha": NO_GRADIENT},
   doc="Draws along the last axis that add up to 1; torch.distributions has the gradient.")


def _infer_multinomial(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    p, n = tensor(inputs[0]), attrs["num_samples"]
    shape = known_shape(p)
    if len(shape) not in (1, 2) or type(n) is not int or n < 1:
        raise InferenceError(f"{n!r} samples from probabilities {list(shape)}")
    if not attrs["replacement"] and n > shape[-1]:
        raise InferenceError(f"{n} samples without replacement from {shape[-1]} categories")
    return (TensorType(I64, (*shape[:-1], n), p.device),)


def _np_multinomial(p: Array, *, num_samples: int, replacement: bool) -> Array:
    raise CodegenError(
        "multinomial has no counterpart in numpy", hint="draw with np.random.choice outside"
    )


op("multinomial(p; num_samples, replacement) -> y", family=Family(_infer_multinomial, RANDOM),
   numpy=_np_multinomial, torch="torch.multinomial({p}, {num_samples}, {replacement})",
   vjp={"p": None}, doc="Indices of categories, by unnormalised probabilities; torch only.")

op("rrelu_noise(x; lower, upper) -> y", family=Family(same_as_first().infer, RANDOM),
   numpy=lambda x, *, lower, upper: np.where(
       x <= 0, np.random.uniform(lower, upper, x.shape), 1.0).astype(x.dtype),
   torch="torch.ops.aten.rrelu_with_noise_functional({x}, torch.empty_like({x}), {lower}, "
         "{upper}, True)[1]",
   vjp={"x": None}, doc="The slope of a randomised leaky relu; where x > 0 it is 1.")

# --- the state itself, where a program of torch's sets it ---------------------------------------


def _no_numpy_state(*_: Array, **__: Any) -> Array:
    raise CodegenError("torch's random state has no counterpart in numpy")


def _infer_effect(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return ()


EFFECT = Family(_infer_effect, RANDOM | {"effect"})
op("random_seed(; seed) -> ", family=EFFECT, numpy=_no_numpy_state,
   torch="(torch.manual_seed({seed}), None)[1]", doc="What is drawn next follows; torch only.")
op("random_state(; shape, dtype, device) -> state", family=DRAWN, numpy=_no_numpy_state,
   torch="torch.get_rng_state", doc="The generator's state; torch only.")
op("set_random_state(state) -> ", family=EFFECT, numpy=_no_numpy_state, vjp={"state": None},
   torch="torch.set_rng_state", doc="Draws go on from a state; torch only.")

# The same of a CUDA device's default generator; its state is a tensor of the CPU's.
op("cuda_random_seed(; seed, generator) -> ", family=EFFECT, numpy=_no_numpy_state,
   torch="(torch.cuda.default_generators[{generator}].manual_seed({seed}), None)[1]",
   doc="`generator` is the index of a device; torch only.")
op("cuda_random_state(; shape, dtype, device, generator) -> state", family=DRAWN,
   numpy=_no_numpy_state, torch="torch.cuda.get_rng_state",
   doc="The state of the generator of a device, by its index; torch only.")
op("set_cuda_random_state(state; generator) -> ", family=EFFECT, numpy=_no_numpy_state,
   vjp={"state": None}, torch="torch.cuda.set_rng_state",
   doc="Draws on a device go on from a state; torch only.")
