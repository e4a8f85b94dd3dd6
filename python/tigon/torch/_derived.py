"""Autograd functions that the schemas of two operators say: backward's arguments are named after forward's."""

import ctypes
import functools

import torch

from tigon._library import in_c
from tigon.torch._autograd import autograd_function
from tigon.torch._op import Op

_NAMES = "saved_tensors", "kept", "needs_input_grad", "to_save", "non_differentiable", "dtype"
_Places = ctypes.c_int64 * 32  # src/ffi/python.h's TIGON_PYTHON_MOST


class _Recipe:
    """What forward keeps for backward, where backward takes its arguments from and which argument each gradient is of.

    Places are numbers. For what forward keeps they count its arguments, then its outputs. There -1 - i is the dtype of
    argument i, if that needs a gradient. For backward's arguments they count its gradients, the saved tensors, and what
    was kept. Last comes whether each argument needs a gradient.

    `options` are those behind forward's own that only backward takes. Returned are the outputs named in `returned`
    (None: the first), of which the last ones, `others`, have no gradient. Backward's arguments that forward does not
    know are the gradients of those, and so are those named in `incoming`. Output d<t> of backward is the gradient of
    argument t; `gradients` says which arguments, by number, another one is of.
    """

    def __init__(self, forward, backward, returned=None, gradients={}, options=(), incoming=(), others=()):
        outputs = [name.removeprefix("out_") for name in forward.output_names]
        self.inputs, self.own = len(forward.tensor_names), len(forward.option_names)
        known = [*forward.tensor_names, *forward.option_names, *options, *outputs]
        first = len(known) - len(outputs)
        self.options, self.others = first > self.inputs, others
        self.returned = [first + outputs.index(name) for name in returned or outputs[:1]]
        given = {f"d{name}": (i,) for i, name in enumerate(forward.tensor_names)}
        given |= {name: (i,) if isinstance(i, int) else i for name, i in gradients.items()}
        self.gradients = [-1] * self.inputs
        for i, name in enumerate(backward.output_names):
            for place in given[name]:
                self.gradients[place] = i

        self.saved, self.kept, sources = [], [], []
        self.incoming = 0
        for name in backward.tensor_names + backward.option_names:
            if name in known and name not in incoming:
                place = known.index(name)
                saves = place < self.inputs or place in self.returned
                into = self.saved if saves else self.kept
                sources.append(("saved" if saves else "kept", len(into)))
                into.append(place)
            elif name.startswith("need_"):
                sources.append(("need", given[name[5:]][0]))
            elif name.endswith("_dtype"):
                sources.append(("kept", len(self.kept)))
                self.kept.append(-1 - given[name[:-6]][0])
            else:
                sources.append(("gradient", self.incoming))
                self.incoming += 1
        begins = dict(gradient=0, saved=self.incoming, kept=self.incoming + len(self.saved))
        begins["need"] = begins["kept"] + len(self.kept)
        self.sources = [begins[kind] + i for kind, i in sources]

    def functions(self, fwd, bwd):
        """Forward and backward as torch.compile may follow them."""

        def forward(ctx, *args):
            tensors, options = args[: self.inputs], args[self.inputs :]
            options = options[0] if options else ()
            outputs = fwd(*tensors, *options[: self.own])
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            pool, needed = (*tensors, *options, *outputs), ctx.needs_input_grad
            ctx.save_for_backward(*[pool[i] for i in self.saved])
            dtype = lambda i: pool[i].dtype if needed[i] else None
            ctx.kept = tuple([pool[i] if i >= 0 else dtype(-1 - i) for i in self.kept])
            returned = tuple([pool[i] for i in self.returned])
            if self.others:
                ctx.mark_non_differentiable(*returned[-len(self.others) :])
            return returned if len(returned) > 1 else returned[0]

        def backward(ctx, *gradients):
            needed = ctx.needs_input_grad
            pool = (*gradients[: self.incoming], *ctx.saved_tensors, *ctx.kept, *needed)
            found = bwd(*[pool[i] for i in self.sources])
            found = found if isinstance(found, tuple) else (found,)
            found = [found[i] if i >= 0 and needed[at] else None for at, i in enumerate(self.gradients)]
            return tuple(found) + (None,) * self.options

        return forward, backward


class _PythonPair(ctypes.Structure):
    """src/ffi/python_pair.c's python_pair."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("forward_op", "backward_op")),
        *((f"{name}_count", ctypes.c_int64) for name in ("saved", "kept", "returned", "incoming", "options", "others")),
        *((name, _Places) for name in ("saved", "kept", "returned", "gradients", "sources")),
        ("names", ctypes.py_object * 6),
        *((name, ctypes.py_object) for name in ("keeps_graph", "otherwise")),
    )


def _in_c(recipe, forward_op, backward_op, otherwise):
    """`functions` in C, by src/ffi/python_pair.c, and the structure that they read. `otherwise` is the backward where a
    graph is kept."""
    pair = _PythonPair(
        forward_op=ctypes.addressof(forward_op.python_op),
        backward_op=ctypes.addressof(backward_op.python_op),
        **{f"{name}_count": len(getattr(recipe, name)) for name in ("saved", "kept", "returned", "others")},
        **{name: _Places(*getattr(recipe, name)) for name in ("saved", "kept", "returned", "gradients", "sources")},
        incoming_count=recipe.incoming,
        options_count=recipe.options,
        names=(ctypes.py_object * 6)(*_NAMES),
        keeps_graph=torch.is_grad_enabled,
        otherwise=otherwise,
    )
    forward, backward = in_c("tigon_python_pair", pair)
    method = ctypes.pythonapi.PyInstanceMethod_New
    method.restype = ctypes.py_object
    return forward, method(ctypes.py_object(backward)), pair


def derived(name, forward_op=None, backward_op=None, parameters=0, both={}, **named):
    """The autograd function of a pair of operators, of forward's tensors and, where there are options, a tuple of them.
    An operator that is not given is named after the function, with the signature of `both`; what is `named` is the
    recipe's."""
    forward_op = forward_op or Op(f"{name}_fwd", **both)
    backward_op = backward_op or Op(f"{name}_bwd", **both)
    recipe = _Recipe(forward_op, backward_op, **named)
    in_c = functools.partial(_in_c, recipe, forward_op, backward_op)
    return autograd_function(name, *recipe.functions(forward_op, backward_op), parameters, in_c)
