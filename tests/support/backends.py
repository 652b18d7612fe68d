"""What updates the weights, as parameters of tests, and Triton's interpreter as they need it.

The Triton kernel runs here without a GPU: when it and Triton are imported, its functions become interpreted ones.
Others' kernels, which may be tuned in ways that the interpreter does not know, are imported later, as they are.
"""

import os
from importlib.util import find_spec

import numpy as np
import pytest

from qlocaladam.kernels import fused

HAS_TRITON = find_spec("triton") is not None
requires_fused = pytest.mark.skipif(fused.library() is None, reason="the fused kernel was not built: no C compiler")
requires_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
FUSED, TRITON = pytest.param("fused", marks=requires_fused), pytest.param("triton", marks=requires_triton)
KERNELS = [FUSED, TRITON]
BACKENDS = ["reference", *KERNELS]
CPU_BACKENDS = ["reference", FUSED]

INTERPRETED_VALUES = 2**14
"""Values of a program: to interpret an operation takes as long for many values as for few."""


def interpret_triton():
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.experimental.gluon  # noqa: F401 - otherwise imported at the first launch
    from triton.runtime.interpreter import InterpretedFunction

    from qlocaladam.kernels import triton as kernel

    del os.environ["TRITON_INTERPRET"]
    kernel.PROGRAM_VALUES = INTERPRETED_VALUES
    run, call = InterpretedFunction.run, InterpretedFunction.__call__

    def quietly(self, *args, **options):
        with np.errstate(all="ignore"):  # what is not finite is not worth a warning on a GPU
            return run(self, *args, **options)

    def without_patching_again(self, *args, **options):
        """The interpreter replaces all of Triton's language for each function that a kernel calls. Once is enough."""
        if self.fn.__module__ != kernel.__name__:
            return call(self, *args, **options)
        return self.rewrite()(*args, **options)

    InterpretedFunction.run, InterpretedFunction.__call__ = quietly, without_patching_again
    remember_types()


def remember_types():
    """The interpreter makes the same few types anew for each operation, and looks for what to replace in Triton's
    language at each launch: three fifths of its time."""
    import triton.language as tl
    from triton.runtime import interpreter

    def made_once(init, key):
        kept = {}

        def again(self, *args):
            if (name := key(*args)) not in kept:
                init(self, *args)
                kept[name] = vars(self).copy()
            vars(self).update(kept[name])

        return again

    def shape_of(element, shape):
        return element.name, *(getattr(size, "value", size) for size in shape)

    of_type = made_once(tl.tensor.__init__, lambda _, kind: kind.name)
    numpy_type, replace, changes = interpreter._get_np_dtype, interpreter._patch_lang, {}
    numpy_types = {}

    def tensor(self, handle, type):
        of_type(self, None, type)
        self.handle = handle

    def remembered_numpy_type(kind):
        if kind.name not in numpy_types:
            numpy_types[kind.name] = numpy_type(kind)
        return numpy_types[kind.name]

    def replace_again(fn):
        if fn not in changes:
            scope = replace(fn)
            changes[fn] = [(where, name, vars(where)[name]) for where, name, _ in scope._changes]
            return scope
        scope = interpreter._LangPatchScope()
        for change in changes[fn]:
            scope.set_attr(*change)
        return scope

    tl.block_type.__init__, tl.tensor.__init__ = made_once(tl.block_type.__init__, shape_of), tensor
    interpreter._get_np_dtype, interpreter._patch_lang = remembered_numpy_type, replace_again


if HAS_TRITON:
    interpret_triton()
