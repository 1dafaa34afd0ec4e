"""Classes of generators, under whose names a trace finds those that are made without a seed.

    np.random.default_rng()       draws what no other call draws: `made` says what stands for it
    np.random.default_rng(3)      draws the same at every call, as the constants of the trace are
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAMES = (
    "default_rng", "RandomState", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64",
    "SeedSequence",
)  # of numpy.random


class Unseeded:
    """Stands for a class, or a function that makes generators; all else is the original's own.

    `made(generator)` is asked for one without a seed, and `seeded(generator)` for another. What is
    given may stand for a generator itself, which `opened` gives.
    """

    def __init__(
        self, original: Any, made: Callable[[Any], Any],
        seeded: Callable[[Any], Any] = lambda generator: generator,
        opened: Callable[[Any], Any] = lambda given: given,
    ) -> None:  # fmt: skip
        self.__dict__.update(original=original, made=made, seeded=seeded, opened=opened)
        functools.update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What stands for a generator."""
        given = [a for a in (*args, *kwargs.values()) if a is not None]
        generator = self.original(
            *map(self.opened, args), **{k: self.opened(v) for k, v in kwargs.items()}
        )
        for each in given:  # default_rng(rng) is rng
            if self.opened(each) is generator:
                return each
        return self.seeded(generator) if given else self.made(generator)

    def __or__(self, other: Any) -> Any:
        return self.original | other

    def __ror__(self, other: Any) -> Any:
        return other | self.original

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.original)

    def __subclasscheck__(self, cls: Any) -> bool:
        return issubclass(cls, self.original)

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        """The class itself, where a class statement has this among its bases."""
        return (self.original,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["original"], name)
