#!/usr/bin/env python3
"""Checks the dependency law of CONTRIBUTING.md on every #include line of the core, the adapters and the programs."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Folder -> what its files may include with "...", besides files of the same folder. This table is the law: a folder
# that is not in it must not contain sources.
LAW = {
    "include/actzip": ["actzip/"],
    "src/math": ["actzip/", "macros.hpp", "math/", "format/"],
    "src/format": ["actzip/", "macros.hpp", "format/"],
    "src/cpu": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/job.hpp", "cpu/"],
    "src/cuda": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/job.hpp", "cuda/"],
    "src/codec": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/", "cpu/backend.hpp",
                  "cuda/backend.hpp"],
    "src/ops": ["actzip/", "macros.hpp", "dispatch.hpp", "math/", "format/", "codec/job.hpp", "codec/message.hpp",
                "cuda/", "ops/"],
    "src/plan": ["actzip/", "plan/"],
    "src/store": ["actzip/", "store/"],
    "src/session": ["actzip/", "format/", "store/", "session/"],
    "src": ["actzip/"],
    # Each of the adapter's folders may use only those above it.
    "adapters/torch/include": ["actzip/"],
    "adapters/torch/src/base": ["actzip/", "base/"],
    "adapters/torch/src/operators": ["actzip/", "base/", "operators/"],
    "adapters/torch/src/observe": ["actzip/", "base/", "operators/", "observe/"],
    "adapters/torch/src/session": ["actzip/", "base/", "operators/", "observe/", "session/"],
    "adapters/torch/src/encoded": ["actzip/", "base/", "operators/", "session/", "encoded/"],
    "adapters/torch/src/hooks": ["actzip/", "base/", "observe/", "session/", "encoded/", "hooks/"],
    "adapters/torch/src/layers": ["actzip/", "base/", "operators/", "observe/", "session/", "encoded/", "hooks/",
                                  "layers/"],
    "adapters/torch/src/compile": ["actzip/", "base/", "operators/", "compile/"],
    "adapters/torch/python": ["actzip/", "base/", "operators/", "observe/", "session/", "hooks/", "compile/",
                              "python/"],
    "adapters/python": ["actzip/"],
    "adapters/paddle/src": ["actzip/"],
    "adapters/paddle/python": ["actzip/", "python/", "operator_table.hpp", "python_tensors.hpp", "saver.hpp",
                               "session.hpp"],
    "apps/data": ["math/hash.hpp"],
    "apps/models": ["actzip/"],
    "apps/train": ["actzip/", "data/", "models/"],
    "apps/cli": ["actzip/", "data/", "build_info.hpp"],
    "apps/bench": ["actzip/"],
    "examples": ["actzip/"],
}
KNOW_FRAMEWORKS = ("adapters/", "examples", "apps/models", "apps/train", "apps/bench")
FRAMEWORKS = ("torch/", "ATen/", "c10/", "paddle/", "pybind11/", "nanobind/", "Python.h", "numpy/")
CUDA_HEADERS = ("cuda", "cooperative_groups", "mma.h", "cub/", "cccl/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cuh", ".cu"}
# Frameworks' names for operators. The core must not contain them, because it knows only uses (actzip/use.hpp). General
# mathematical names are allowed.
SPELLINGS = re.compile(
    r"\b(aten|addmm|baddbmm|bmm|addmv|torch|paddle|miopen|autograd|_to_copy|hardtanh|"
    r"(?:mkldnn|cudnn|native|thnn|_thnn|_scaled_dot_product|_flash_attention|nll_loss|max_pool\dd)\w*|"
    r"_(?:log_|safe_)?softmax|_fused_rms_norm)\b")


def folder_of(path):
    """Returns the longest folder in the table that contains `path`, or None."""
    name = path.relative_to(ROOT).as_posix()
    holders = [folder for folder in LAW if name.startswith(folder + "/")]
    return max(holders, key=len, default=None)


def problem(path, folder, quote, name):
    """Returns what is wrong with an include, or None."""
    if not folder.startswith(KNOW_FRAMEWORKS) and name.startswith(FRAMEWORKS):
        return "is a framework's header; adapters, and what is built on them, may know frameworks"
    if quote == '"':
        beside = "/" not in name and (path.parent / name).exists()
        if not beside and not name.startswith(tuple(LAW[folder])):
            return f"is outside what {folder} may include: {', '.join(LAW[folder])}"
        return None
    if folder == "include/actzip" and not re.fullmatch(r"[a-z_0-9]+", name):
        return "is not of the standard library, the only one public headers may use"
    if folder in ("src/math", "src/format", "src/codec", "src/cpu", "src/plan", "src/store", "src/session", "src",
                  "apps/data") and name.startswith(CUDA_HEADERS):
        return "is CUDA's; it belongs into src/cuda or src/ops"
    return None


def circles(includes):
    """Finds headers that include each other, directly or not. `includes` maps a file to the files it includes."""
    found, state = [], {}

    def visit(file, way):
        state[file] = "open"
        for other in sorted(includes.get(file, ())):
            if state.get(other) == "open":
                names = [str(f.relative_to(ROOT)) for f in (*way[way.index(other):], other)]
                found.append("a circle of includes: " + " -> ".join(names))
            elif other not in state:
                visit(other, [*way, other])
        state[file] = "done"

    for file in sorted(includes):
        if file not in state:
            visit(file, [file])
    return found


def own_file(path, name):
    """Returns the file of this repository that `name` refers to in `path`, or None."""
    roots = (path.parent, *(ROOT / root for root in (
        "include", "src", "adapters", "adapters/torch/include", "adapters/torch/src", "adapters/paddle/src", "apps")))
    return next((root / name for root in roots if (root / name).exists()), None)


def main():
    checked, faults, includes = 0, [], {}
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
                spelling = SPELLINGS.search(line) if top in ("include", "src") else None
                if spelling:
                    faults.append(
                        f"{where}:{number}: '{spelling[0]}' is how a framework spells it; the core knows uses")
                match = INCLUDE.match(line)
                if other := match and own_file(path, match[2]):
                    includes.setdefault(path, set()).add(other)
                fault = match and problem(path, folder, match[1], match[2])
                if fault:
                    faults.append(f"{where}:{number}: {match[2]} {fault}")
    everything = ROOT / "include/actzip/actzip.hpp"
    left_out = set(everything.parent.glob("*.hpp")) - includes[everything] - {everything}
    faults += [f"include/actzip/actzip.hpp: says that it is everything, but leaves out {path.name}"
               for path in sorted(left_out)]
    faults += circles(includes)
    print("\n".join(faults) if faults else f"{checked} files keep the dependency law")
    return 1 if faults or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
