"""What the code of a layer says: whether its mask reaches its attention, and whether it asks which attention is chosen.

Trials cannot show either: a layer runs only inside of its model."""

import ast
import functools
import inspect
import textwrap

_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
_MASK = 4  # its place in a call of an attention function, behind module, query, key and value


@functools.cache
def makes_its_mask(module_class: type) -> bool:
    """Whether a layer calls its attention with another mask than it is given, or hides what it does."""
    try:
        (forward,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(module_class.forward)))).body
    except (OSError, SyntaxError, ValueError):
        return True
    values = {}  # what is assigned to a name
    for node in ast.walk(forward):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            for target in getattr(node, "targets", None) or [node.target]:
                for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                    values.setdefault(name, []).append(node.value)
    arguments = {argument.arg for argument in (*forward.args.args, *forward.args.kwonlyargs)}
    functions = {name for name, assigned in values.items() if any(_REGISTRY in ast.dump(v) for v in assigned)}

    def is_given(node, within=()) -> bool:
        if isinstance(node, ast.Name):
            assigned = values.get(node.id, [])
            known = node.id in arguments or bool(assigned)
            return node.id in within or (known and all(is_given(v, (*within, node.id)) for v in assigned))
        if isinstance(node, ast.IfExp):
            return is_given(node.body, within) and is_given(node.orelse, within)
        if isinstance(node, ast.BoolOp):
            return all(is_given(value, within) for value in node.values)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "get":  # out of a dictionary of masks
            return is_given(node.func.value, within)
        return isinstance(node, ast.Constant) or (isinstance(node, ast.Dict) and not node.keys)

    for node in ast.walk(forward):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in functions:
            named = [keyword.value for keyword in node.keywords if keyword.arg == "attention_mask"]
            if not all(map(is_given, named or node.args[_MASK : _MASK + 1])):
                return True
    return False


def asks_for(module_class: type, implementation: str) -> bool:
    """Whether a method of the class itself compares the configuration's attention with that name."""
    for method in vars(module_class).values():
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        if code is not None and "_attn_implementation" in code.co_names:
            names = [name for c in code.co_consts for name in (c if isinstance(c, (tuple, frozenset)) else (c,))]
            if implementation in names:
                return True
    return False
