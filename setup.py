"""Builds the fused kernel once for each instruction set; pyproject.toml says everything else."""

import platform

from setuptools import Extension, setup

# What the vectoriser needs and no more: NaN and infinity keep their meaning, and flush-to-zero is not turned on for
# the whole process, as linking with -ffast-math would.
FLAGS = [
    "-O3",
    "-std=c11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-ffp-contract=fast",
    "-fopenmp-simd",
    "-fno-wrapv",
]
X86 = {"avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"], "avx2": ["-march=x86-64-v3"]}
VARIANTS = {"default": [], **(X86 if platform.machine().lower() in ("x86_64", "amd64") else {})}

setup(
    ext_modules=[
        Extension(
            f"qlocaladam.kernels._fused_{name}",
            ["src/qlocaladam/kernels/fused.c"],
            depends=[f"src/qlocaladam/kernels/{name}.h" for name in ("fast", "fast_plain", "fast_avx512")],
            extra_compile_args=FLAGS + march,
            # Without a compiler the package still installs, and runs on its reference kernel.
            optional=True,
        )
        for name, march in VARIANTS.items()
    ]
)
