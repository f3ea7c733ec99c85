"""Shape inputs: tensors whose values are sizes of the outputs, so that a runtime reads them before it allocates.

A fake kernel reads such a value as `sizes[0].item()`. While it runs to give formulas, what it reads is the size that stands
for that value, and not a number of its own that torch would make up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError

if TYPE_CHECKING:
    import torch

    from .interface import Interface
    from .type_rules import TypeRules

__all__ = ["read_shape_inputs", "reading_mode"]

_WHOLE = ("int64", "int32")


def read_shape_inputs(
    name: str, names: Sequence[str], interface: Interface, types: TypeRules
) -> tuple[str, ...]:
    """The declared shape inputs, in the order of the operator's inputs. Raises DeclarationError for what cannot be one."""
    known = {i.name: i for i in interface.inputs}
    for given in names:
        if given not in known:
            raise DeclarationError(
                f"{name}: shape_inputs names `{given}`; the tensors are {', '.join(known)}"
            )
        if known[given].form != "single" or known[given].mutated:
            raise DeclarationError(
                f"{name}: shape_inputs names `{given}`, which is optional, a list, or written into; a shape input is always there, "
                "and only read"
            )
        strange = [t for t in types.variables[types.of_input[given]] if t not in _WHOLE]
        if strange:
            raise DeclarationError(
                f"{name}: shape_inputs names `{given}`, which is {' or '.join(strange)}; sizes are int64 or int32: "
                f'dtypes={{"{given}": ("int64",), …}}'
            )
    if set(names) >= set(known):
        raise DeclarationError(f"{name}: every tensor is a shape input; there is nothing to compute with")
    return tuple(n for n in known if n in set(names))


def reading_mode(shape_env: Any) -> Any:
    """A FakeTensorMode in which `remember(tensor, values)` makes `tensor[k].item()` give `values[k]`."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    aten = torch.ops.aten

    class Reading(FakeTensorMode):
        def __init__(self) -> None:
            super().__init__(shape_env=shape_env, allow_non_fake_inputs=True)
            self.values: dict[int, tuple[torch.Tensor, Any]] = {}  # the tensor is held: its id stays its own

        def remember(self, tensor: torch.Tensor, values: Any) -> None:
            self.values[id(tensor)] = (tensor, values)

        def __torch_dispatch__(
            self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            held = self.values.get(id(args[0])) if args else None
            if held is not None and func is aten._local_scalar_dense.default and len(_flat(held[1])) == 1:
                return _flat(held[1])[0]
            made: Any = super().__torch_dispatch__(func, types, args, kwargs or {})
            if held is not None:
                self._follow(func, args, made, held[1])
            return made

        def _follow(self, func: Any, args: Sequence[Any], made: Any, values: Any) -> None:
            """What an operation takes out of a tensor whose values are remembered (it has one dimension, or none)."""
            if func in (aten.alias.default, aten.detach.default, aten.clone.default):
                self.remember(made, values)
            elif not isinstance(values, list):
                return
            elif func is aten.select.int:
                self.remember(made, values[args[2]])
            elif func is aten.unbind.int:
                for tensor, value in zip(made, values, strict=True):
                    self.remember(tensor, value)
            elif func is aten.slice.Tensor:
                bounds = list(args[2:]) + [None, None, 1][len(args[2:]) :]
                self.remember(made, values[slice(*bounds)])

    return Reading()


def _flat(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]
