"""Parts of drawn programs of torch (4 of 4): leaves that a function makes; see `drawn.py`."""

PARTS = r"""
--- madeparam
. self.start = 2.0
w1 = nn.Parameter(torch.full((3,), self.start, dtype=h.dtype))
h = h * h * w1
! m.start = 0.5
! m.start = torch.tensor(3.0).double()
--- madelayer
l1 = nn.Linear(3, 3).to(h.dtype)
h = l1(h).tanh()
! torch.manual_seed(5)
--- deepmodel
. self.l2 = nn.Linear(3, 3)
twin = copy.deepcopy(self.l2)
with torch.no_grad(): twin.weight.mul_(0.5)
h = twin(h) + self.l2(h)
! m.l2.weight.data.mul_(0.5)
! m.l2.requires_grad_(False)
! m.l2 = nn.Linear(3, 3).double()
! m.l2.weight.grad = None
! m.l2.bias.requires_grad_(not m.l2.bias.requires_grad)
! m.l2.extra = 1
--- frozentwin
. self.l3 = nn.Linear(3, 3)
t3 = copy.deepcopy(self.l3).requires_grad_(False).eval()
h = h + (self.l3(h) - t3(h) * 0.5)
! m.l3.weight = nn.Parameter(m.l3.weight.detach() * 2)
! m.l3.train()
--- innersgd
with torch.enable_grad():
    w4 = nn.Parameter(torch.zeros(3, dtype=h.dtype))
    o4 = torch.optim.SGD([w4], lr=0.1, momentum=0.5)
    for _ in range(2):
        o4.zero_grad()
        (w4 - h.detach().mean(0)).square().sum().backward()
        o4.step()
h = h - w4.detach()
--- inneradam
. self.l5 = nn.Linear(3, 1)
with torch.enable_grad():
    t5 = copy.deepcopy(self.l5)
    for p in t5.parameters(): p.grad = None
    o5 = torch.optim.Adam(t5.parameters(), lr=0.05)
    for _ in range(2):
        o5.zero_grad()
        t5(h.detach()).square().mean().backward()
        o5.step()
h = h * t5(h)
! m.l5.weight.data.mul_(2)
! m.l5.weight.requires_grad_(not m.l5.weight.requires_grad)
--- bydata
w6 = nn.Parameter(torch.ones(3, dtype=h.dtype))
with torch.enable_grad():
    g6, = torch.autograd.grad((w6 ** 2).sum(), w6)
w6.data = w6.data - 0.1 * g6
h = h * h * w6
--- written
t7 = torch.empty(3, dtype=h.dtype).fill_(1.5)
w7 = nn.Parameter(t7)
with torch.no_grad(): w7.mul_(2)
h = h * h * w7
--- writtenboth
t8 = torch.empty(3, dtype=h.dtype).fill_(1.5)
w8 = nn.Parameter(t8)
with torch.no_grad(): w8.mul_(2)
h = h * h * w8 + t8
--- keptparam
. self.last = None
w9 = nn.Parameter(torch.ones(3, dtype=h.dtype))
with torch.enable_grad(): (w9 ** 3).sum().backward()
self.last = w9.grad
h = h * self.last
! m.last = None
--- lazyparam
. self.p0 = None
if self.p0 is None: self.p0 = nn.Parameter(torch.full((3,), 1.5, dtype=h.dtype))
h = h * self.p0
! m.p0 = None
! m.p0.data.mul_(2)
--- replaced
. self.p1 = nn.Parameter(torch.ones(3))
self.p1 = nn.Parameter(self.p1.detach() * 0.9)
h = h * self.p1
! m.p1.data.fill_(1)
--- loaded
. self.l6 = nn.Linear(3, 3)
l7 = nn.Linear(3, 3).to(h.dtype)
l7.load_state_dict(self.l6.state_dict())
h = l7(h) + self.l6(h)
! m.l6.weight.data.mul_(0.5)
--- copiedstate
. self.ws = {'a': torch.ones(3), 'b': [torch.zeros(3)]}
c8 = copy.deepcopy(self.ws)
c8['a'] += 1
h = h * c8['a'].to(h.dtype) + c8['b'][0].to(h.dtype)
! m.ws['a'].mul_(3)
! m.ws['b'].append(torch.ones(3))
! m.ws['b'][0] = m.ws['a']
! m.ws = {'a': torch.zeros(3), 'b': [torch.ones(3)]}
--- viewscopied
. self.base = torch.arange(6.0)
c9 = copy.deepcopy([self.base, self.base[3:]])
c9[0][3] += 5
h = h * c9[1].to(h.dtype)
! m.base += 1
! m.base = torch.ones(6)
--- outerback
. self.p2 = nn.Parameter(torch.ones(3))
with torch.enable_grad():
    w10 = nn.Parameter(torch.ones(3, dtype=h.dtype))
    (w10 * self.p2).sum().backward(inputs=[w10])
h = h * w10.grad
! m.p2.data.mul_(2)
--- paramlist
. self.k9 = 2
ps = nn.ParameterList(
    nn.Parameter(torch.full((3,), i + 1.0, dtype=h.dtype)) for i in range(self.k9))
for p in ps: h = h * h * p
! m.k9 = 3
--- weightnorm
wn = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(h.dtype)
h = wn(h)
--- config
@ class Conf:
@     table = {'width': 'n'}
@     def __init__(self): self.n = 2.0; self.other = 1.0; self.dtype = None
@     def __getattribute__(self, name):
@         if name != 'table' and name in super().__getattribute__('table'):
@             name = super().__getattribute__('table')[name]
@         return super().__getattribute__(name)
@ conf = Conf()
h = h * conf.width
if conf.other > 3: h = h + 1
! conf.n = 3.0
! conf.other += 1
! conf.dtype = torch.float32
! conf.table['width'] = 'other'
! Conf.table = {}; Conf.width = 0.5
! conf.__dict__['n'] = 4.0
! Conf.n2 = 1
! del conf.__dict__['n']; conf.n = 0.25
--- confdyn
@ class Conf2:
@     def __init__(self): self.a = 2.0; self.b = 3.0
@     def __getattribute__(self, name): return super().__getattribute__(name)
@ conf2, keys2 = Conf2(), ['a']
for k in keys2: h = h * getattr(conf2, k, 1.0)
! conf2.a = 3.0
! keys2.append('b')
! conf2.b = 0.5
! keys2.append('c')
! conf2.c = 2.0
! vars(conf2)['a'] = 1.25
--- registry
@ class K1: s = 2.0
@ class K2: s = 3.0
@ reg = {K1}
@ kinds = [K1]
if kinds[-1] in reg: h = h * kinds[-1].s
! reg.add(K2)
! kinds.append(K2)
! K1.s = 0.5
! reg.discard(K1)
! K2.s = 1.5
--- registrywalk
@ class K3: s = 2.0
@ class K4: s = 3.0
@ reg2 = {K3}
@ alias2 = {'r': reg2}
if K3 in reg2: h = h * sum(sorted(k.s for k in alias2['r']))
! reg2.add(K4)
! K3.s = 0.5
! K4.s = 0.25
! alias2['r'] = {K4}
--- optstate
@ class OS(__import__('typing').NamedTuple):
@     n: int = 0
@     lr: float = 1.0
@     mu: object = None
. self.os = OS(0, 1.0, torch.zeros(3))
mu = self.os.mu.to(h.dtype) * 0.5 + h.detach().mean(0)
self.os = self.os._replace(n=self.os.n + 1, lr=self.os.lr * 0.9, mu=mu)
h = h * self.os.lr + mu * self.os.n
! m.os = OS(5, 0.5, torch.ones(3).double())
! m.os = m.os._replace(n=-1)
! m.os = m.os._replace(lr=2)
! m.os = m.os._replace(n=2.5)
! m.os = m.os._replace(n=True)
! m.os.mu.zero_()
--- tuples
. self.tu = (1, 2.0, torch.ones(3), (3.0, torch.ones(3)))
h = h * self.tu[0] * self.tu[1] + self.tu[3][0]
h = h * self.tu[2].to(h.dtype)
! m.tu = (m.tu[0] + 1, *m.tu[1:])
! m.tu = (*m.tu[:3], (m.tu[3][0] * 2, m.tu[3][1]))
! m.tu = [*m.tu]
! m.tu = (*m.tu[:2], torch.zeros(3), m.tu[3])
! m.tu = (1, 2.0, m.tu[2], (3.0, m.tu[3][1], 1))
! m.tu = (torch.tensor(2.0).double(), *m.tu[1:])
! m.tu = (*m.tu[:1], np.float64(1.5), *m.tu[2:])
--- tupleloop
@ sched = {'s': (2, torch.ones(3))}
for _ in range(sched['s'][0]): h = h + sched['s'][1].to(h.dtype)
sched['s'] = (sched['s'][0] % 3 + 1, sched['s'][1])
! sched['s'] = (0, torch.zeros(3))
! sched['s'] = (1, sched['s'][1] * 2)
"""
