"""An operator's torch schema and its outputs, from the library's description of its C entry.

Arguments come in the order of the C struct: the tensors that are read, then the numbers. All outputs are made, except
gradients that may be absent. Each of those has an option: need_d<t> says whether the gradient of argument t is wanted.
Where t is no argument, d<t>_dtype says its dtype. Left out are sums into a gradient that is there (accumulate_), a
further factor (grad_scale), and where an index out of range is reported (error).
"""

import math

import torch

from tigon._library import ENTRIES

_SIGNS = "*&@"  # which stand for any number of dimensions
_NUMBERS = {"DOUBLE": "float", "INT": "int", "INT64": "int"}
_ELSEWHERE = ("accumulate_", "error", "out_error", "grad_scale")


def _bind(extents, pattern, shape):
    """Adds the extents of a pattern's letters that are not known yet; what does not fit is the entry's to refuse."""
    if pattern[0] in "?1r":
        return
    at = next((i for i, sign in enumerate(pattern) if sign in _SIGNS), len(pattern))
    end = max(len(shape) - len(pattern[at + 1 :]), at)
    extents.setdefault(pattern[at : at + 1], tuple(shape[at:end]))  # "" where no sign is
    for letter, extent in [*zip(pattern[:at], shape), *zip(pattern[at + 1 :], shape[end:])]:
        extents.setdefault(letter, extent)


def _shape(extents, pattern):
    pattern, _, meaning = pattern.partition(" ")
    if meaning == "a scalar":
        return ()
    shape = []
    for letter in pattern.removeprefix("?"):
        if letter == "@":  # as another such tensor has it, if there is one
            shape += extents.get("@", extents.get("*", ()))
        elif letter in _SIGNS:
            shape += extents.get(letter, ())
        elif letter == "r":
            shape.append(math.prod(extents["*"]))
        else:
            shape.append(int(letter) if letter.isdigit() else extents.get(letter, 1))
    return tuple(shape)


class Signature:
    """`halves`: which tensor holds two fields side by side. `views`: which (shape, strides) the entry is to see.
    `without`: fields that are left out. `required`: those that the entry alone may lack. `extents`: letters whose extent
    is an option, and its name. `options`: those that no field is, as in a schema. `when`: of an output, a function that
    says from the arguments by name whether it is made. `wide`: of an output, the option that makes it f32. `dtypes`: of
    an output, the option that is its dtype. `check`: what else is looked at before outputs are made."""

    def __init__(
        self, name, entry, halves={}, views={}, without=(), required=(), extents={}, options=(), when={}, wide={}, dtypes={},
        check=None,
    ):
        self.halves, self.views, self.when, self.wide, self.check = halves, views, when, wide, check
        packed = {field: tensor for tensor, fields in halves.items() for field in fields}
        fields = {}  # in the order of the entry's checks
        for field in ENTRIES[entry].fields:
            if field.name not in without and not field.name.startswith(_ELSEWHERE):
                fields.setdefault(packed.get(field.name, field.name), field)
        in_struct = sorted(fields.items(), key=lambda item: item[1].offset)
        self.optional = {key for key, field in in_struct if "OPTIONAL" in field.flags and key not in required}
        tensors = {key: field for key, field in in_struct if field.kind == "TENSOR"}
        numbers = {key: field for key, field in in_struct if field.kind in _NUMBERS}
        self.read = {key: field for key, field in tensors.items() if "OUT" not in field.flags}
        self.made = {key: field for key, field in tensors.items() if "OUT" in field.flags}
        self.by_check = [key for key in fields if key in self.read]
        self.extents = extents | {field.shape: key for key, field in numbers.items() if field.shape}
        arguments = [f"Tensor{'?' * (key in self.optional)} {key}" for key in self.read]
        arguments += [f"int {option}" for option in extents.values()]
        arguments += [*options, *(f"ScalarType {option}" for option in dtypes.values())]
        for key, field in numbers.items():
            arguments.append(f"{'bool' if 'IS_FLAG' in field.flags else _NUMBERS[field.kind]} {key}")
        self.choices = dict(dtypes)
        for key, field in self.made.items():
            if key[0] == "d" and "OPTIONAL" in field.flags:
                known = key[1:] in self.read
                self.choices[key] = f"need_{key}" if known else f"{key}_dtype"
                arguments.append(f"{'bool' if known else 'ScalarType?'} {self.choices[key]}")
        self.names = [argument.split()[1] for argument in arguments]
        self.tensor_names, self.option_names = self.names[: len(self.read)], self.names[len(self.read) :]
        self.output_names = list(self.made)
        self.schema = f"{name}({', '.join(arguments)}) -> ({', '.join(f'Tensor {key}' for key in self.made)})"
        self.sources = {key: self._source(key, field) for key, field in self.made.items()}

    def _source(self, name, field):
        """The argument that an output is laid out as, None where none is."""
        if name[0] == "d" and name[1:] in self.read:
            return name[1:]
        kind = lambda field: (field.shape, field.like, field.dtypes)
        whole = (key for key in self.by_check if key not in self.halves and key not in self.optional)
        return next((key for key in whole if kind(self.read[key]) == kind(field)), None)

    def outputs(self, *args):
        """The outputs for an operator's arguments, by their layouts and its options alone; None for an absent one."""
        given = dict(zip(self.names, args))
        if self.check:
            self.check(self, given)
        made = []
        for name, field in self.made.items():
            choice = given[self.choices[name]] if name in self.choices else True
            source = self.sources[name]
            if choice is None or choice is False or (name in self.when and not self.when[name](given)):
                made.append(None)
            elif source:
                made.append(torch.empty_like(given[source]))
            else:
                made.append(self._make(name, field, choice, given))
        return tuple(made)

    def _extents(self, given):
        extents = {letter: given[option] for letter, option in self.extents.items()}
        for name in self.by_check:
            if given[name] is not None:
                _bind(extents, self.read[name].shape, self.layout(name, given[name])[0])
        return extents

    def layout(self, name, t):
        """Shape and strides as the entry has them: a packed tensor as one of its halves."""
        shape, strides = tuple(t.shape), t.stride()
        if name in self.views:
            return self.views[name](shape, strides)
        return ((*shape[:-1], shape[-1] // 2) if name in self.halves else shape), strides

    def _make(self, name, field, choice, given):
        shape = _shape(self._extents(given), field.shape)
        if name in self.halves:
            shape = (*shape[:-1], 2 * shape[-1])
        first = given[self.by_check[0]]
        if isinstance(choice, torch.dtype):
            dtype = choice
        elif name in self.wide and given[self.wide[name]]:
            dtype = torch.float32
        elif field.like:
            dtype = next(given[key].dtype for key in self.by_check if self.read[key].like == field.like)
        else:
            dtype = getattr(torch, field.dtypes[0])
        return first.new_empty(shape, dtype=dtype)
