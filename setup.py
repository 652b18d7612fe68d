"""Builds the fused kernel once for each instruction set; pyproject.toml says everything else.

The kernel is no Python module: it is loaded with ctypes and knows nothing of Python.h.
So one wheel serves every Python.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

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


class BuildKernel(build_ext):
    def build_extensions(self) -> None:
        """Without the paths in which the Python that builds it looks for libraries, some of which note them down."""
        self.compiler.linker_so = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        super().build_extensions()

    def get_ext_filename(self, fullname: str) -> str:
        """Without the version of Python in its name."""
        return f"{fullname.replace('.', '/')}.so"


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """For any Python 3; for any machine, too, where there was no compiler."""
        compiled = any(Path(self.bdist_dir).rglob("*.so"))
        return "py3", "none", super().get_tag()[2] if compiled else "any"


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": Wheel},
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
    ],
)
