"""AdamW over the adamw operator: one call for all tensors of a group, f32 master weights, clipping on the device."""

import ctypes

import torch

from tigon import _abi
from tigon._library import ENTRIES
from tigon.torch._op import context, write_layout

_Param = ENTRIES["adamw_step"].element
_STATE = "master", "exp_avg", "exp_avg_sq"


def _local(t):
    """A DTensor's own shard."""
    return t.to_local() if hasattr(t, "to_local") else t


def _check_group(group):
    """The numbers of a group, as the operator takes them."""
    beta1, beta2 = group["betas"]
    limits = {"lr": (group["lr"], 0), "eps": (group["eps"], 2**-126), "weight_decay": (group["weight_decay"], 0)}
    for name, (value, least) in limits.items():
        if not least <= float(value) <= torch.finfo(torch.float32).max:
            raise ValueError(f"AdamW: {name} is {float(value):g}, must be {least:g} or more, and finite")
    for i, beta in enumerate((beta1, beta2)):
        if not 0 <= float(beta) < 1:
            raise ValueError(f"AdamW: betas[{i}] is {float(beta):g}, must be 0 or more and less than 1")


def _tensor(call, field, t):
    made = _abi.Tensor(data=t.data_ptr())
    write_layout(call, field, made, t.dtype, t.shape, t.stride())
    return made


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay, as torch.optim.AdamW, whose state it shares by name.

    params f32, bf16 or f16; gradients f32 or as the parameter, not sparse; exp_avg and exp_avg_sq are f32. What is not
    contiguous is stepped by way of a copy. With master_weights a 16-bit parameter is the rounded image of an f32 copy,
    state["master"]. max_norm clips all gradients by their global norm within the step, without waiting for the device;
    the norm is then in self.grad_norm. Each rank updates its own shard of a DTensor, for which max_norm is refused.
    """

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, *, master_weights=True, max_norm=None
    ):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, master_weights=master_weights)
        if max_norm is not None and not max_norm >= 0:
            raise ValueError(f"AdamW: max_norm is {max_norm}, must be None, or 0 or more")
        super().__init__(params, defaults)
        self.max_norm, self.grad_norm = max_norm, None

    def add_param_group(self, param_group):
        if isinstance(param_group, dict):
            _check_group(self.defaults | param_group)
        super().add_param_group(param_group)

    @torch.compiler.disable
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        buckets = {}  # tensors that one call takes: of a group, a device and a step
        grads = {}
        for i, group in enumerate(self.param_groups):
            for p in group["params"]:
                if p.grad is not None:
                    layout = p.grad.layout
                    if layout != torch.strided:
                        raise NotImplementedError(f"AdamW: a gradient's layout is {layout}, must be torch.strided")
                    grads[p] = _local(p.grad).resolve_neg().contiguous()
                    step = self._state(p, group["master_weights"])["step"]
                    buckets.setdefault((i, grads[p].device, int(step) + 1), []).append(p)
        if self.max_norm and any(p.grad is not _local(p.grad) for p in grads):
            raise NotImplementedError("AdamW: max_norm is given for a DTensor, whose norm is a sum over the ranks")
        factor = self._clip(list(grads.values())) if self.max_norm and grads else None
        for (i, device, step), params in buckets.items():
            self._step(device, self.param_groups[i], step, params, grads, factor)
            for p in params:
                self.state[p]["step"] += 1
        return loss

    def load_state_dict(self, state_dict):
        """torch's casts the state to the parameters' dtype; ours is f32."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            group.setdefault("master_weights", self.defaults["master_weights"])
        saved = (i for group in state_dict["param_groups"] for i in group["params"])
        params = (p for group in self.param_groups for p in group["params"])
        for i, p in zip(saved, params):
            for name in self.state[p].keys() & set(_STATE):
                self.state[p][name] = state_dict["state"][i][name].to(p.device, torch.float32, copy=True)

    def _state(self, p, master_weights):
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
        if master_weights and p.dtype != torch.float32 and "master" not in state:
            state["master"] = p.detach().float()
        return state

    def _step(self, device, group, step, params, grads, factor):
        table = (_Param * len(params))()
        copied = []  # tensors that are not contiguous, and what stands for them
        for entry, p in zip(table, params):
            tensors = {"param": p, "grad": grads[p]} | {name: self.state[p].get(name) for name in _STATE}
            for name, t in tensors.items():
                if t is not None:
                    t = _local(t)
                    if not t.is_contiguous() or t.is_neg():
                        copied.append((t, t.resolve_neg().contiguous()))
                        t = copied[-1][1]
                    setattr(entry, name, _tensor("adamw_step", name, t))
            entry.weight_decay = group["weight_decay"]
        struct = ENTRIES["adamw_step"].struct(
            params=ctypes.addressof(table),
            count=len(params),
            lr=float(group["lr"]),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            eps=group["eps"],
            step=step,
        )
        if factor is not None:
            struct.clip_factor = _tensor("adamw_step", "clip_factor", factor)
        context(device).run("adamw_step", struct)
        for t, stepped in copied:
            t.copy_(stepped)

    def _clip(self, grads):
        """The factor that scales the gradients' global norm down to max_norm, on the device."""
        device = grads[0].device
        for grad in grads:
            if grad.device != device:
                raise ValueError(f"adamw_clip: a gradient is on {grad.device}, must be on {device} as the first one")
        self.grad_norm, factor = torch.empty((2, 1), dtype=torch.float32, device=device)
        table = (_abi.Tensor * len(grads))(*(_tensor("adamw_clip", "grads", grad) for grad in grads))
        struct = ENTRIES["adamw_clip"].struct(grads=ctypes.addressof(table), count=len(grads), max_norm=self.max_norm)
        struct.norm = _tensor("adamw_clip", "norm", self.grad_norm)
        struct.factor = _tensor("adamw_clip", "factor", factor)
        needed = ctypes.c_size_t()
        context(device).run("adamw_clip_workspace", struct, needed)
        workspace = torch.empty(needed.value, dtype=torch.uint8, device=device)
        struct.workspace, struct.workspace_bytes = workspace.data_ptr(), needed.value
        context(device).run("adamw_clip", struct)
        return factor
