"""The declaration of an operator: one function, and what is derived from it hangs off the `Operator`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import DeclarationError, ExportError
from . import gradient, registry
from .attributes import encode_attribute
from .declared_functions import Returns, check_parameters, checked_fake, checked_reference, refuse_second
from .interface import Interface, read_schema
from .onnx_names import camel_case, read_onnx_name
from .samples import Sample, SampleFunction, collect
from .shape_inputs import read_shape_inputs
from .torch_schema import infer_schema, schema_text
from .type_rules import DeclaredDtypes, OutputType, TypeRules, read_dtypes, read_output_types

if TYPE_CHECKING:
    import torch

__all__ = ["Operator", "operator"]


class Operator:
    """A declared operator. Call it like the function it was made from.

    Attributes of use to readers: `name` (``ns::op``), `domain`, `op_type`, `version`, `interface`, `types`,
    `stateful`, `overload` (the torch operator), `reference` (the slow, plainly right definition).
    """

    def __init__(
        self,
        name: str,
        *,
        onnx: str,
        version: int,
        overload: Any,
        reference: Callable[..., Any],
        dtypes: DeclaredDtypes,
        outputs: Sequence[str] | None,
        stateful: bool,
        custom_op: Any = None,
        shape_inputs: Sequence[str] = (),
        doc: str = "",
        source: str = "",
    ) -> None:
        self.name = name
        self.domain, self.op_type = read_onnx_name(name, onnx)
        if not isinstance(version, int) or version < 1:
            raise DeclarationError(
                f"{name}: version = {version!r}: an operator-set version is an integer from 1 on"
            )
        self.version = version
        self.overload = overload
        self.reference = reference
        self.custom_op = custom_op  # torch's own definition object; None for an adopted operator
        self.stateful = stateful
        self.doc = doc
        self.source = source
        self.interface: Interface = read_schema(overload._schema, outputs)
        self.types: TypeRules = read_dtypes(name, self.interface, dtypes)
        self.shape_inputs = read_shape_inputs(name, shape_inputs, self.interface, self.types)
        self.body_function: Callable[..., Any] | None = None
        self.sample_function: SampleFunction | None = None
        self.bound_function: Callable[..., Any] | None = None
        self.usual_function: Callable[..., Any] | None = None
        self.fake_function: Callable[..., Any] | None = None
        self.backward_function: Callable[..., Any] | None = None
        self.has_fake = custom_op is None
        self.has_backward = False
        self.no_gradient: str | None = None  # why an adopted operator has none
        self.shape_cache: dict[Any, Any] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<operator {self.name} = {self.onnx_name} v{self.version}>"

    @property
    def onnx_name(self) -> str:
        """Domain and operator type, ``acme::Swish``."""
        return f"{self.domain}::{self.op_type}"

    @property
    def returns(self) -> Returns:
        """What a call returns, by the torch schema: the name of each result, and whether it is a list."""
        fresh = iter([o for o in self.interface.outputs if o.mutates is None])
        found = []
        for k, r in enumerate(self.overload._schema.returns):
            output = next(fresh) if r.alias_info is None else None
            found.append((output.name, output.form == "variadic") if output else (f"result {k}", False))
        return found

    @property
    def schema(self) -> str:
        """The torch schema, ``acme::swish(Tensor x, float beta=1.0) -> (Tensor)``."""
        return schema_text(self.overload._schema)

    # --- what a declaration adds -------------------------------------------------------------------------

    def fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the shape and dtype rule: same arguments, returns empty tensors. The only one there is."""
        import torch

        refuse_second(self.name, "fake", self.fake_function, function)
        check_parameters(self.name, "fake kernel", function, self.interface.arguments)
        torch.library.register_fake(self.name, checked_fake(self, function))
        self.fake_function = function
        self.has_fake = True
        self._forget()
        return function

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the upper bound of every size that the data decides: same arguments, returns a whole number made of
        sizes; a tuple of them where the fake kernel asks for several (`new_dynamic_size()`), in its order.

        A native library allocates as much: a reference that returns more is found by the checks.
        """
        refuse_second(self.name, "bound", self.bound_function, function)
        check_parameters(self.name, "bound", function, self.interface.arguments)
        self.bound_function = function
        self._forget()
        return function

    def usual(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what TensorRT shall tune for where the data decides sizes, as `bound` does; without it, half of each."""
        refuse_second(self.name, "usual", self.usual_function, function)
        check_parameters(self.name, "usual", function, self.interface.arguments)
        self.usual_function = function
        self._forget()
        return function

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient: ``f(grad_of_each_output, *arguments)`` -> one for each tensor argument."""
        if self.custom_op is None:
            raise DeclarationError(
                f"{self.name} is adopted: torch owns its gradient (torch.library.register_autograd)"
            )
        if self.interface.mutates:
            raise DeclarationError(f"{self.name} writes into an argument: torch allows it no gradient")
        refuse_second(self.name, "backward", self.backward_function, function)
        grads = [f"grad_{name}" for name, _ in self.returns]
        check_parameters(self.name, "backward", function, self.interface.arguments, grads)
        gradient.register(self, function)
        self.backward_function = function
        self.has_backward = True
        return function

    def body(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the fallback: ``f(op, *arguments)``, built of standard ONNX operators ``op.Mul(x, y)``."""
        refuse_second(self.name, "body", self.body_function, function)
        check_parameters(self.name, "body", function, self.interface.arguments, ("op",))
        self.body_function = function
        return function

    def samples(self, function: SampleFunction) -> SampleFunction:
        """Declare test inputs: ``f(draw)`` yields argument tuples (see `Draw`)."""
        refuse_second(self.name, "samples", self.sample_function, function)
        self.sample_function = function
        self._forget()
        return function

    # --- what is derived ---------------------------------------------------------------------------------

    def make_samples(self, dtype: str = "float32", seed: int = 0) -> list[Sample]:
        """The declared test inputs in one dtype."""
        return [] if self.sample_function is None else collect(self.sample_function, dtype, seed)

    def sample_calls(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Shapes by input name and encoded attributes, for every sample."""
        if self._sample_calls is None:
            first = self.types.drawn
            calls, values = [], []
            for sample in self.make_samples("float32" if "float32" in first else first[0]):
                try:
                    bound = self.interface.bind(sample.args, sample.kwargs)
                except ExportError:  # `ops check` says what is wrong with it
                    continue
                shapes = {
                    n: None
                    if v is None
                    else [tuple(t.shape) for t in v]
                    if isinstance(v, (list, tuple))
                    else tuple(v.shape)
                    for n, v in bound.tensors.items()
                }
                calls.append((shapes, dict(bound.attributes)))
                values.append({n: tuple(bound.tensors[n].reshape(-1).tolist()) for n in self.shape_inputs})
            self._sample_calls, self._sample_values = calls, values
        return self._sample_calls

    def sample_values(self) -> list[dict[str, tuple[int, ...]]]:
        """The values of the shape inputs by name, for every one of `sample_calls`."""
        self.sample_calls()
        return self._sample_values

    _sample_calls: list[tuple[dict[str, Any], dict[str, Any]]] | None = None
    _sample_values: list[dict[str, tuple[int, ...]]]

    def sample_shapes(self) -> Iterable[Mapping[str, Any]]:
        """Input shapes of the samples: realistic sizes on which to run the fake kernel."""
        return [shapes for shapes, _ in self.sample_calls()]

    @cached_property
    def output_types(self) -> dict[str, OutputType]:
        """The dtype rule of each output."""
        return read_output_types(self)

    def output_dtype(self, output: str, known: Mapping[str, str | None]) -> str | None:
        """The dtype of an output, from those of the inputs by name; None where it cannot be told."""
        rule = self.output_types[output]
        if rule.variable is not None:
            return next(
                (known[n] for n, v in self.types.of_input.items() if v == rule.variable and known.get(n)),
                None,
            )
        return rule.dtypes[0] if len(rule.dtypes) == 1 else None

    def flatten_outputs(self, result: Any, given: Mapping[str, Any]) -> list[torch.Tensor]:
        """The results of a call as the exported node has them: lists flattened, overwritten inputs last."""
        import torch

        items = [] if result is None else [result] if isinstance(result, torch.Tensor) else list(result)
        fresh = [o for o in self.interface.outputs if o.mutates is None]
        if len(fresh) == 1 and fresh[0].form == "variadic":
            items = [items]
        flat: list[torch.Tensor] = []
        for _, item in zip(fresh, items, strict=False):
            flat.extend(item) if isinstance(item, (list, tuple)) else flat.append(item)
        flat.extend(given[o.mutates] for o in self.interface.outputs if o.mutates is not None)
        return flat

    def _forget(self) -> None:
        self.shape_cache.clear()
        self._sample_calls = None
        self.__dict__.pop("output_types", None)


def operator(
    name: str,
    *,
    onnx: str | None = None,
    version: int = 1,
    dtypes: DeclaredDtypes = ("float32", "float64", "float16", "bfloat16"),
    mutates: Iterable[str] = (),
    outputs: Sequence[str] | None = None,
    schema: str | None = None,
    stateful: bool = False,
    shape_inputs: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator by its reference: a slow, plainly right function that also runs in float64.

    ::

        @operator("acme::swish", onnx="acme::SwishBeta")
        def swish(x: Tensor, beta: float = 1.0) -> Tensor:
            return x * torch.sigmoid(beta * x)

        @swish.fake
        def _(x, beta=1.0):
            return torch.empty_like(x)

    Args:
        name: the torch operator, ``namespace::name``; registered for every device.
        onnx: the ONNX operator, ``domain::Type``; by default the namespace and the name in CamelCase.
        version: the operator-set version of its domain. A released signature never changes: raise it instead.
        dtypes: what the tensor inputs may be. A tuple: all alike. A mapping ``{"x, weight": (...), "index":
            ("int64",)}``: names in one key, separated by commas, share a type.
        mutates: names of the arguments it writes into.
        outputs: names of the outputs (``y``, or ``y0``, ``y1``, …).
        schema: the torch schema, where annotations cannot say it.
        stateful: random or stateful: equal nodes are not merged, constants not folded.
        shape_inputs: tensors of sizes (int64 or int32), whose values are sizes of the outputs; the fake kernel reads them
            as `sizes[0].item()`.

    Raises:
        DeclarationError: what ONNX cannot carry, with the reason.
    """

    def declare(function: Callable[..., Any]) -> Operator:
        import torch

        namespace, _, short = name.partition("::")
        if not re.fullmatch(r"[A-Za-z_]\w*", namespace) or not re.fullmatch(r"[A-Za-z_]\w*", short):
            raise DeclarationError(f"{name!r}: a torch operator is named `namespace::name`, both identifiers")
        if namespace in ("aten", "prims", "prim", "onnx", "onnx_symbolic"):
            raise DeclarationError(f"{name}: the namespace `{namespace}` is torch's; use your own")
        mutated = tuple(mutates)
        text = schema or infer_schema(name, function, mutated)
        onnx_name = onnx or f"{namespace}::{camel_case(short)}"
        read_onnx_name(name, onnx_name)  # refuse before torch registers anything
        source = inspect.getsourcefile(function) or ""
        registry.refuse_twice(name, onnx_name, source, function.__name__)
        reference = checked_reference(name, function, lambda: op.returns)
        try:
            custom_op = torch.library.custom_op(name, reference, mutates_args=mutated, schema=text)
        except (NotImplementedError, RuntimeError, ValueError) as e:
            raise DeclarationError(f"{name}: torch refuses `{text}`: {e}") from None
        op = Operator(
            name,
            onnx=onnx_name,
            version=version,
            overload=custom_op._opoverload,
            reference=reference,
            dtypes=dtypes,
            outputs=outputs,
            stateful=stateful,
            shape_inputs=shape_inputs,
            custom_op=custom_op,
            doc=inspect.getdoc(function) or "",
            source=source,
        )
        # A default that its field cannot hold is refused here, not at export.
        for a in op.interface.attributes:
            if a.default is not None:
                try:
                    encode_attribute(name, a, a.default)
                except ExportError as e:
                    raise DeclarationError(str(e)) from None
        if not op.interface.mutates:
            gradient.register(op, None)
        registry.add(op)
        return op

    return declare
