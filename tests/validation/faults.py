"""What converters, optimisers and kernels get wrong, each in a small model: the right function and the faulty one."""

from __future__ import annotations

from .fault import Fault
from .faults_elementwise import ACTIVATIONS
from .faults_layers import LAYERS
from .faults_layout import LAYOUT

__all__ = ["FAULTS", "Fault"]

FAULTS = (*ACTIVATIONS, *LAYERS, *LAYOUT)
