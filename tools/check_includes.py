#!/usr/bin/env python3
"""The dependency law of CONTRIBUTING.md, checked on every #include line of the core, the adapters and the programs."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folder -> what its files may include by "...", beside files of the same folder. The law is this table; a folder that is
# not in it may hold no sources.
LAW = {
    "include/actzip": ["actzip/"],
    "src/math": ["actzip/", "macros.hpp", "math/", "format/"],
    "src/format": ["actzip/", "macros.hpp", "format/"],
    "src/cpu": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/job.hpp", "cpu/"],
    "src/cuda": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/job.hpp", "codec/activation_job.hpp", "codec/batch_norm_job.hpp", "cuda/"],
    "src/codec": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/", "cpu/backend.hpp", "cuda/activation.hpp", "cuda/backend.hpp", "cuda/batch_norm.hpp"],
    "src/plan": ["actzip/", "plan/"],
    "src/store": ["actzip/", "store/"],
    "src/session": ["actzip/", "format/", "store/", "session/"],
    "src": ["actzip/"],
    "adapters/torch": ["actzip/", "batch_norm_kernels.hpp", "convert.hpp", "encoded_tensor.hpp", "engine.hpp", "memory.hpp",
                       "memory_log.hpp", "noise_stream.hpp", "operator_info.hpp", "operators.hpp", "parameters.hpp", "run_of_memory.hpp", "sample_table.hpp",
                       "session_impl.hpp", "site_sequence.hpp"],
    "apps/data": ["math/hash.hpp"],
    "apps/models": ["actzip/"],
    "apps/train": ["actzip/", "data/", "models/"],
    "apps/cli": ["actzip/", "data/", "build_info.hpp"],
    "apps/bench": ["actzip/"],
    "examples": ["actzip/"],
}
FRAMEWORKS = ("torch/", "ATen/", "c10/", "paddle/", "pybind11/", "nanobind/", "Python.h", "numpy/")
CUDA_HEADERS = ("cuda", "cooperative_groups", "mma.h", "cub/", "cccl/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cuh", ".cu"}


def folder_of(path):
    """The longest folder of the table that holds `path`; None if there is none."""
    name = path.relative_to(ROOT).as_posix()
    holders = [folder for folder in LAW if name.startswith(folder + "/")]
    return max(holders, key=len, default=None)


def problem(path, folder, quote, name):
    """What is wrong with one include, or None."""
    if folder not in ("examples", "adapters/torch", "apps/models", "apps/train", "apps/bench") and name.startswith(FRAMEWORKS):
        return "is a framework's header; adapters, and what is built on them, may know frameworks"
    if quote == '"':
        beside = "/" not in name and (path.parent / name).exists()
        if not beside and not name.startswith(tuple(LAW[folder])):
            return f"is outside what {folder} may include: {', '.join(LAW[folder])}"
        return None
    if folder == "include/actzip" and not re.fullmatch(r"[a-z_0-9]+", name):
        return "is not of the standard library, the only one public headers may use"
    if folder in ("src/math", "src/format", "src/codec", "src/cpu", "src/plan", "src/store", "src/session", "src", "apps/data") and name.startswith(CUDA_HEADERS):
        return "is CUDA's; it belongs into src/cuda"
    return None


def main():
    checked, faults = 0, []
    for top in ("include", "src", "adapters", "apps", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            checked += 1
            folder = folder_of(path)
            where = path.relative_to(ROOT)
            if folder is None or (folder == "src" and path.parent != ROOT / "src"):
                faults.append(f"{where}: its folder is not in the table of tools/check_includes.py")
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                fault = match and problem(path, folder, match[1], match[2])
                if fault:
                    faults.append(f"{where}:{number}: {match[2]} {fault}")
    print("\n".join(faults) if faults else f"{checked} files keep the dependency law")
    return 1 if faults or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
