"""State that a function reads: every kind of value in some places, every place with some kinds.

A value is bound anew, or changed in place, between calls, and bound to what it was.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.programs.sequence import Sequence


@dataclass(frozen=True)
class Value:
    """Two values, how a function uses one, and how it is changed in place ({v} is its place)."""

    first: str
    second: str
    use: str
    change: str | None = None
    define: str = ""  # what is defined before


@dataclass(frozen=True)
class Place:
    """Where a value stands: what defines it and `f`, how the caller names it and binds it anew."""

    setup: str
    name: str
    bind: str
    strings: bool = False  # holds nothing else


VALUES = {
    "int": Value("2", "3", "x * {v}"),
    "float": Value("2.0", "3.0", "x * {v}"),
    "bool": Value("True", "False", "x if {v} else x * 2"),
    "str": Value("'tanh'", "'sin'", "getattr(torch, {v})(x)"),
    "none": Value("None", "2.0", "x if {v} is None else x * {v}"),
    "type": Value("2", "2.0", "x * 3 if isinstance({v}, int) else x"),
    "minus-zero": Value("0.0", "-0.0", "x * math.copysign(2.0, {v})"),
    "nan": Value("math.nan", "1.0", "x if math.isnan({v}) else x * 2"),
    "complex": Value("1j", "3 + 4j", "x * abs({v})"),
    "bytes": Value("b'ab'", "b'abc'", "x * len({v})"),
    "np-float64": Value("np.float64(2)", "np.float64(5)", "x * {v}"),
    "np-float32": Value("np.float32(2)", "np.float32(5)", "x * float({v})"),
    "np-int": Value("np.int64(2)", "np.int64(3)", "x ** int({v})"),
    "np-bool": Value("np.bool_(True)", "np.bool_(False)", "x if {v} else -x"),
    "np-str": Value("np.str_('a')", "np.str_('b')", "x if {v} == 'a' else -x"),
    "ndarray": Value("np.array([2.0])", "np.array([5.0])", "x * float({v}[0])", "{v}[0] = 7.0"),
    "ndarray-tensor": Value(
        "np.full(3, 2.0)", "np.full(3, 5.0)", "x * torch.from_numpy({v})", "{v}[0] = 7.0"
    ),
    "enum": Value("Mode.A", "Mode.B", "x * {v}.value", define="class Mode(enum.Enum): A, B = 1, 2"),
    "enum-is": Value(
        "Mode.A", "Mode.B", "x if {v} is Mode.A else -x", define="class Mode(enum.Enum): A, B = 1, 2"
    ),
    "flag": Value(
        "Flag.A", "Flag.A | Flag.B", "x if Flag.B in {v} else -x",
        define="class Flag(enum.Flag): A, B = 1, 2",
    ),
    "set": Value("{{1}}", "{{1, 2}}", "x * len({v})", "{v}.add(9)"),
    "set-swap": Value("{{1, 2}}", "{{1, 3}}", "x if 2 in {v} else -x", "{v}.remove(2); {v}.add(4)"),
    "frozenset": Value("frozenset([1])", "frozenset([1, 2])", "x * len({v})"),
    "deque": Value(
        "collections.deque([1.0, 2.0])", "collections.deque([3.0])", "x * sum({v})", "{v}.append(4.0)"
    ),
    "deque-rotated": Value(
        "collections.deque([1.0, 2.0])", "collections.deque([3.0])", "x * {v}[0]", "{v}.rotate()"
    ),
    "array": Value("Array('d', [2.0])", "Array('d', [5.0])", "x * {v}[0]", "{v}[0] = 7.0",
                   define="from array import array as Array"),
    "bytearray": Value("bytearray(b'a')", "bytearray(b'b')", "x * {v}[0]", "{v}[0] = 9"),
    "memoryview": Value("memoryview(bytearray(b'a'))", "memoryview(b'b')", "x * {v}[0]", "{v}[0] = 9"),
    "list": Value("[2.0, 1.0]", "[3.0, 1.0]", "x * {v}[0]", "{v}[0] = 7.0"),
    "list-length": Value("[2.0]", "[2.0, 3.0]", "x * len({v})", "{v}.append(1.0)"),
    "list-reversed": Value("[2.0, 3.0]", "[3.0]", "x * {v}[-1]", "{v}.reverse()"),
    "tuple": Value("(2.0, [3.0])", "(2.0, [4.0])", "x * {v}[1][0]", "{v}[1][0] = 7.0"),
    "dict": Value("dict(a=2.0)", "dict(a=3.0)", "x * {v}['a']", "{v}['a'] = 7.0"),
    "dict-get": Value("dict(a=2.0)", "dict(b=3.0)", "x * {v}.get('b', 1.0)", "{v}['b'] = 7.0"),
    "dict-order": Value(
        "dict(a=2.0, b=3.0)", "dict(b=3.0, a=2.0)", "x * next(iter({v}.values()))",
        "{v}['a'] = {v}.pop('a')",
    ),
    "dict-update": Value("dict(a=2.0)", "dict(a=3.0)", "x * sum({v}.values())", "{v} |= dict(c=1.0)"),
    "ordered-dict": Value(
        "collections.OrderedDict(a=2.0, b=3.0)", "collections.OrderedDict(b=1.0)",
        "x * list({v}.values())[0]", "{v}.move_to_end('a')",
    ),
    "defaultdict": Value(
        "collections.defaultdict(float, a=2.0)", "collections.defaultdict(float, a=3.0)",
        "x * {v}['a']", "{v}['a'] += 1",
    ),
    "counter": Value("collections.Counter('ab')", "collections.Counter('aab')", "x * {v}['a']",
                     "{v}.update('aa')"),
    "chain-map": Value("collections.ChainMap(dict(a=2.0))", "collections.ChainMap(dict(a=3.0))",
                       "x * {v}['a']", "{v}.maps[0]['a'] = 7.0"),
    "user-dict": Value("collections.UserDict(a=2.0)", "collections.UserDict(a=3.0)", "x * {v}['a']",
                       "{v}['a'] = 7.0"),
    "mapping-proxy": Value("types.MappingProxyType(dict(a=2.0))", "types.MappingProxyType(dict(a=3.0))",
                           "x * {v}['a']"),
    "namespace": Value("types.SimpleNamespace(a=2.0)", "types.SimpleNamespace(a=3.0)", "x * {v}.a",
                       "{v}.a = 7.0"),
    "dataclass": Value("Data(2.0)", "Data(3.0)", "x * {v}.a", "{v}.a = 7.0",
                       define="@dataclasses.dataclass\nclass Data:\n    a: float"),
    "named-tuple": Value("Row(2.0)", "Row(3.0)", "x * {v}.a",
                         define="Row = collections.namedtuple('Row', 'a')"),
    "slots": Value("Slots(2.0)", "Slots(3.0)", "x * {v}.a", "{v}.a = 7.0",
                   define="class Slots:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a"),
    "hidden": Value("Hidden(2.0)", "Hidden(3.0)", "x * {v}()", "{v}.a = 7.0",
                    define="class Hidden:\n    def __init__(self, a): self.a = a\n"
                           "    def __call__(self): return self.a"),
    "len-method": Value("Sized(2)", "Sized(3)", "x * len({v})", "{v}.a = 7",
                        define="class Sized:\n    def __init__(self, a): self.a = a\n"
                               "    def __len__(self): return self.a"),
    "eq-method": Value("Same(2)", "Same(3)", "x if {v} == 2 else -x", "{v}.a = 7",
                       define="class Same:\n    __hash__ = None\n"
                              "    def __init__(self, a): self.a = a\n"
                              "    def __eq__(self, other): return self.a == other"),
    "float-subclass": Value("Unit(2.0)", "Unit(3.0)", "x * {v}", define="class Unit(float): pass"),
    "int-subclass": Value("Count(2)", "Count(3)", "x * {v}", define="class Count(int): pass"),
    "list-subclass": Value("Stack([2.0])", "Stack([3.0])", "x * {v}[0] * {v}.k", "{v}.k = 7.0",
                           define="class Stack(list): k = 1.0"),
    "fraction": Value("Fraction(1, 2)", "Fraction(3, 4)", "x * float({v})",
                      define="from fractions import Fraction"),
    "decimal": Value("Decimal('0.5')", "Decimal('2.5')", "x * float({v})",
                     define="from decimal import Decimal"),
    "timedelta": Value("timedelta(seconds=2)", "timedelta(seconds=3)", "x * {v}.total_seconds()",
                       define="from datetime import timedelta"),
    "range": Value("range(2)", "range(3)", "x * len({v})"),
    "slice": Value("slice(0, 2)", "slice(1, 3)", "x[{v}]"),
    "function": Value("lambda y: y * 2", "lambda y: y * 3", "({v})(x)"),
    "partial": Value("functools.partial(torch.mul, 2.0)", "functools.partial(torch.mul, 3.0)", "{v}(x)"),
    "torch-function": Value("torch.sin", "torch.cos", "{v}(x)"),
    "module": Value("Scale(2.0)", "Scale(3.0)", "{v}(x)", "{v}.k = 7.0",
                    define="class Scale(nn.Module):\n"
                           "    def __init__(self, k): super().__init__(); self.k = k\n"
                           "    def forward(self, x): return x * self.k"),
    "class": Value("A", "B", "x * {v}.k", "{v}.k = 7.0",
                   define="class A: k = 2.0\nclass B: k = 3.0"),
    "dtype": Value("torch.float32", "torch.float64", "x.to({v})"),
    "size": Value("torch.Size([3])", "torch.Size([1, 3])", "x.reshape({v})"),
    "tensor": Value("torch.full((3,), 2.0)", "torch.full((3,), 3.0)", "x * {v}", "{v}.mul_(2)"),
    "tensor-item": Value("torch.tensor(2.0)", "torch.tensor(3.0)", "x * {v}.item()", "{v}.mul_(2)"),
    "tensor-dtype": Value("torch.ones(3)", "torch.ones(3).half()", "x * {v}.element_size()"),
    "parameter": Value("nn.Parameter(torch.ones(3))", "nn.Parameter(torch.full((3,), 2.0))", "x * {v}",
                       "{v}.requires_grad_(False)"),
    "path": Value("Path('a')", "Path('a/b')", "x * len({v}.parts)", define="from pathlib import Path"),
    "pattern": Value("re.compile('a')", "re.compile('b')", "x if {v}.match('a') else -x",
                     define="import re"),
    "property": Value("Prop(2.0)", "Prop(3.0)", "x * {v}.a", "{v}.hidden = 7.0",
                      define="class Prop:\n    def __init__(self, a): self.hidden = a\n"
                             "    @property\n    def a(self): return self.hidden * 2"),
    "cached-property": Value("Lazy(2.0)", "Lazy(3.0)", "x * {v}.a", "del {v}.a; {v}.hidden = 7.0",
                             define="class Lazy:\n    def __init__(self, a): self.hidden = a\n"
                                    "    @functools.cached_property\n"
                                    "    def a(self): return self.hidden * 2"),
    "hasattr": Value("Box()", "Box(k=1)", "x if hasattr({v}, 'k') else -x", "{v}.k = 1"),
    "getattr-default": Value("Box()", "Box(k=5.0)", "x * getattr({v}, 'k', 1.0)", "{v}.k = 7.0"),
    "callable": Value("Box()", "print", "x if callable({v}) else -x"),
    "lock": Value("threading.Lock()", "threading.Lock()", "x if {v}.locked() else -x", "{v}.acquire()",
                  define="import threading"),
    "queue": Value("Q([1.0])", "Q([1.0, 2.0])", "x * {v}.qsize()", "{v}.put(1)",
                   define="import queue\ndef Q(items):\n    q = queue.Queue()\n"
                          "    for i in items: q.put(i)\n    return q"),
    "weakref": Value("weakref.ref(KEPT)", "weakref.ref(OTHER)", "x * {v}().k", "{v}().k = 7.0",
                     define="import weakref\nKEPT, OTHER = Box(k=2.0), Box(k=3.0)"),
}  # fmt: skip

_F = "def f(x):\n    return ({use}).sum()"
PLACES = {
    "global": Place(f"V = {{init}}\n{_F}", "V", "V = {new}"),
    "closure": Place(
        "def make():\n    v = {init}\n    def f(x):\n        return ({use:v}).sum()\n"
        "    def put(new):\n        nonlocal v; v = new\n    return f, put, lambda: v\n"
        "f, put, get = make()",
        "get()", "put({new})",
    ),
    "attribute": Place(f"o = Box(v={{init}})\n{_F}", "o.v", "o.v = {new}"),
    "self": Place(
        "class Loss:\n    def __init__(self): self.v = {init}\n"
        "    def __call__(self, x): return ({use:self.v}).sum()\nf = Loss()",
        "f.v", "f.v = {new}",
    ),
    "module": Place(
        "class Net(nn.Module):\n    def __init__(self): super().__init__(); self.v = {init}\n"
        "    def forward(self, x): return ({use:self.v}).sum()\nf = Net()",
        "f.v", "f.v = {new}",
    ),
    "method": Place(
        "class Loss:\n    def __init__(self): self.v = {init}\n"
        "    def loss(self, x): return ({use:self.v}).sum()\no = Loss()\nf = o.loss",
        "o.v", "o.v = {new}",
    ),
    "dict": Place(f"d = dict(v={{init}})\n{_F}", "d['v']", "d['v'] = {new}"),
    "list": Place(f"l = [0, {{init}}]\n{_F}", "l[1]", "l[1] = {new}"),
    "deep": Place(
        f"o = Box(a=Box(b=[dict(k={{init}})]))\n{_F}", "o.a.b[0]['k']", "o.a.b[0]['k'] = {new}"
    ),
    "class-attribute": Place(f"class C: v = {{init}}\no = C()\n{_F}", "o.v", "C.v = {new}"),
    "inherited": Place(
        f"class B: v = {{init}}\nclass C(B): pass\no = C()\n{_F}", "o.v", "B.v = {new}"
    ),
    "shadowed": Place(f"class C: v = {{init}}\no = C()\n{_F}", "o.v", "o.v = {new}"),
    "slot": Place(
        f"class S: __slots__ = ('v',)\no = S(); o.v = {{init}}\n{_F}", "o.v", "o.v = {new}"
    ),
    "property": Place(
        "class P:\n    @property\n    def v(self): return self.stored[-1]\n"
        f"o = P(); o.stored = [{{init}}]\n{_F}",
        "o.v", "o.stored.append({new})",
    ),
    "getattr-method": Place(
        "class G:\n    def __init__(self): self.table = dict(v={init})\n"
        "    def __getattr__(self, name):\n        if name == 'table': raise AttributeError(name)\n"
        f"        return self.table[name]\no = G()\n{_F}",
        "o.v", "o.table['v'] = {new}",
    ),
    "getattribute": Place(
        "class G:\n    def __getattribute__(self, name):\n"
        "        return object.__getattribute__(self, '_' + name if name == 'v' else name)\n"
        f"o = G(); o._v = {{init}}\n{_F}",
        "o.v", "o._v = {new}",
    ),
    "descriptor": Place(
        "class D:\n    def __get__(self, obj, cls): return STORE['v']\n"
        f"class C: v = D()\nSTORE = dict(v={{init}})\no = C()\n{_F}",
        "o.v", "STORE['v'] = {new}",
    ),
    "metaclass": Place(
        f"class M(type): v = {{init}}\nclass C(metaclass=M): pass\n{_F}", "C.v", "M.v = {new}"
    ),
    "default": Place(
        "def f(x, v={init}):\n    return ({use:v}).sum()",
        "f.__defaults__[0]", "f.__defaults__ = ({new},)",
    ),
    "kw-default": Place(
        "def f(x, *, v={init}):\n    return ({use:v}).sum()",
        "f.__kwdefaults__['v']", "f.__kwdefaults__ = dict(v={new})",
    ),
    "function-attribute": Place(
        "def f(x):\n    return ({use:f.v}).sum()\nf.v = {init}", "f.v", "f.v = {new}"
    ),
    "helper-default": Place(
        "def h(v={init}): return v\n" + _F, "h()", "h.__defaults__ = ({new},)"
    ),
    "globals-call": Place(f"V = {{init}}\n{_F}", "globals()['V']", "globals()['V'] = {new}"),
    "vars": Place(f"o = Box(v={{init}})\n{_F}", "vars(o)['v']", "o.v = {new}"),
    "computed-name": Place(f"o = Box(v1={{init}})\n{_F}", "getattr(o, f'v{{1}}')", "o.v1 = {new}"),
    "attrgetter": Place(
        f"o = Box(v={{init}}); read = operator.attrgetter('v')\n{_F}", "read(o)", "o.v = {new}"
    ),
    "reduce": Place(
        f"o = Box(a=Box(v={{init}}))\n{_F}", "functools.reduce(getattr, ['a', 'v'], o)", "o.a.v = {new}"
    ),
    "eval": Place(f"o = Box(v={{init}})\n{_F}", "eval('o.v')", "o.v = {new}"),
    "import-inside": Place(
        "sys.modules['helper'] = types.ModuleType('helper'); sys.modules['helper'].v = {init}\n"
        "def f(x):\n    import helper\n    return ({use:helper.v}).sum()",
        "sys.modules['helper'].v", "sys.modules['helper'].v = {new}",
    ),
    "from-import-inside": Place(
        "sys.modules['helper'] = types.ModuleType('helper'); sys.modules['helper'].v = {init}\n"
        "def f(x):\n    from helper import v\n    return ({use:v}).sum()",
        "sys.modules['helper'].v", "sys.modules['helper'].v = {new}",
    ),
    "module-attribute": Place(
        "helper = types.ModuleType('helper'); sys.modules['helper'] = helper\n"
        f"helper.v = {{init}}\n{_F}",
        "helper.v", "helper.v = {new}",
    ),
    "context-variable": Place(
        f"CV = contextvars.ContextVar('cv'); CV.set({{init}})\n{_F}", "CV.get()", "CV.set({new})"
    ),
    "thread-local": Place(
        f"import threading\nlocal = threading.local(); local.v = {{init}}\n{_F}",
        "local.v", "local.v = {new}",
    ),
    "environment": Place(
        f"os.environ['PROGRAM_V'] = {{init}}\n{_F}", "os.environ['PROGRAM_V']",
        "os.environ['PROGRAM_V'] = {new}", strings=True,
    ),
    "builtins": Place(
        f"import builtins; builtins.PROGRAM_V = {{init}}\n{_F}", "PROGRAM_V",
        "builtins.PROGRAM_V = {new}",
    ),
    "comprehension": Place(f"l = [{{init}}]\n{_F}", "[v for v in l][0]", "l[0] = {new}"),
    "lambda-inside": Place(f"o = Box(v={{init}})\n{_F}", "(lambda: o.v)()", "o.v = {new}"),
    "static-method": Place(
        "o = Box(v={init})\nclass C:\n    @staticmethod\n    def read(): return o.v\n" + _F,
        "C.read()", "o.v = {new}",
    ),
    "class-method": Place(
        "class C:\n    v = {init}\n    @classmethod\n    def read(cls): return cls.v\n" + _F,
        "C.read()", "C.v = {new}",
    ),
    "partial": Place(
        "def h(x, v):\n    return ({use:v}).sum()\nf = functools.partial(h, v={init})",
        "f.keywords['v']", "f.keywords['v'] = {new}",
    ),
    "wrapped": Place(
        "def wrap(h):\n    @functools.wraps(h)\n    def inner(x): return h(x)\n    return inner\n"
        f"o = Box(v={{init}})\n@wrap\n{_F}",
        "o.v", "o.v = {new}",
    ),
    "nested-module": Place(
        "class Inner(nn.Module):\n"
        "    def __init__(self): super().__init__(); self.v = {init}\n"
        "    def forward(self, x): return {use:self.v}\n"
        "net = Inner()\nf = nn.Sequential(net, nn.Tanh())",
        "net.v", "net.v = {new}",
    ),
    "zip": Place(f"l = [{{init}}]\n{_F}", "next(v for _, v in zip(range(1), l))", "l[0] = {new}"),
    "super": Place(
        "class B:\n    def read(self): return self.v\n"
        "class C(B):\n    def read(self): return super().read()\n"
        f"o = C(); o.v = {{init}}\n{_F}",
        "o.read()", "o.v = {new}",
    ),
    "frame": Place(f"V = {{init}}\n{_F}", "sys._getframe().f_globals['V']", "V = {new}"),
    "lru-cache": Place(
        "@functools.lru_cache\ndef table(): return Box(v={init})\n" + _F, "table().v", "table().v = {new}"
    ),
    "registry": Place(
        "REGISTRY = {{}}\ndef register(name, v): REGISTRY[name] = v\n"
        f"register('v', {{init}})\n{_F}",
        "REGISTRY['v']", "register('v', {new})",
    ),
    "tensor-attribute": Place(
        f"w = torch.ones(3); w.v = {{init}}\n{_F}", "w.v", "w.v = {new}"
    ),
    "parameter-attribute": Place(
        f"w = nn.Parameter(torch.ones(3)); w.v = {{init}}\n{_F}", "w.v", "w.v = {new}"
    ),
}  # fmt: skip


def _sequence(kind: str, place: str, in_place: bool) -> Sequence:
    value, where = VALUES[kind], PLACES[place]
    setup = where.setup
    while "{use:" in setup:
        start = setup.index("{use:")
        end = setup.index("}", start)
        used = value.use.format(v=setup[start + 5 : end])
        setup = setup[:start] + used.replace("{", "{{").replace("}", "}}") + setup[end + 1 :]
    name = where.name.format()
    first, second = value.first.format(), value.second.format()
    setup = setup.format(init=first, use=value.use.format(v=name))
    bind, back = where.bind.format(new=second), where.bind.format(new=first)
    if in_place:
        assert value.change is not None
        change = value.change.format(v=name)
        steps: tuple[str, ...] = ("", "", change, "")
    else:
        steps = ("", "", bind, "", back)
    how = "changed" if in_place else "bound"
    define = f"{value.define}\n" if value.define else ""
    return Sequence(f"state-{kind}-in-{place}-{how}", define + setup, steps)


def _all() -> list[Sequence]:
    """Every kind in a place bound and changed, in turn; every place with further kinds."""
    open_places = [name for name, place in PLACES.items() if not place.strings]
    turn = itertools.cycle(open_places)
    names: dict[tuple[str, str, bool], None] = {}
    for kind, value in VALUES.items():
        names[kind, "global", False] = None
        names[kind, next(turn), False] = None
        if value.change is not None:
            names[kind, "self", True] = None
            names[kind, next(turn), True] = None
    for place in PLACES:
        for kind in ("str",) if PLACES[place].strings else ("float", "bool", "np-float64"):
            names[kind, place, False] = None
    for place in open_places:
        names["list", place, True] = None
    return [_sequence(*key) for key in names]


SEQUENCES = _all()
