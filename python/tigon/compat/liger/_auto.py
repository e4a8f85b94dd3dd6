"""AutoLigerKernelForCausalLM, which needs transformers when it is imported."""

from transformers import AutoModelForCausalLM

from ._models import OPTIONS, _apply_liger_kernel_to_instance, all_types


class AutoLigerKernelForCausalLM(AutoModelForCausalLM):
    """transformers' class; the options of apply_liger_kernel_to_* choose what of the model is replaced. No other model
    is touched."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        options, kwargs = _parted(kwargs)
        return _applied(super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs), options)

    @classmethod
    def from_config(cls, config, **kwargs):
        options, kwargs = _parted(kwargs)
        return _applied(super().from_config(config, **kwargs), options)


def _parted(kwargs):
    options = {name: kwargs[name] for name in OPTIONS & kwargs.keys()}
    return options, {name: value for name, value in kwargs.items() if name not in options}


def _applied(model, options):
    apply = all_types().get(model.config.model_type)
    if apply:
        apply(model=model, **options)
    else:
        _apply_liger_kernel_to_instance(model, **options)
    return model
