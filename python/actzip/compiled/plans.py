"""Compiles the plan of an eager session into graphs. A graph cannot change its bits later."""

from __future__ import annotations

import hashlib
from typing import Any

from ..options import check

#: Saved states of sessions with plans, by a name that is part of the options. Graphs may need them at any time.
_states: dict[str, str] = {}


def planned_options(session: Any, given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of graphs that follow the session's plan. ``given`` may contain only ``seed`` and
    ``derive``."""
    from ..session import Session

    if not isinstance(session, Session):
        raise TypeError(f"actzip.compile: plan={session!r} (allowed: an actzip.Session that has made a plan)")
    if others := set(given) - {"seed", "derive"}:
        raise TypeError(f"actzip.compile: plan=session beside {', '.join(sorted(others))} (allowed: seed and derive; all "
                        "else is the session's)")
    adapt = session.options["adapt"]
    if "sample" in adapt:
        raise ValueError(f"actzip.compile: a plan of adapt={adapt!r}, whose bits change from batch to batch (allowed: "
                         "'layer', 'measured', or an average such as bits=1.5)")
    plan = session.report().plan
    if plan is None or plan.plans == 0:
        raise ValueError("actzip.compile: the session has made no plan yet (allowed: once its report().plan has plans)")
    seeds = {name: value for name, value in given.items() if name == "seed"}
    check(seeds)
    state = session.save_state()
    name = hashlib.sha256(state.encode()).hexdigest()
    _states[name] = state
    own = {option: session.options[option]
           for option in ("preset", "bits", "min_numel", "rules", "codec", "only", "adapt", "max_bits", "seed")}
    if session.options["budget"] is not None:
        own["adapt"] = "layer"  # a budget plans like that; nothing counts bytes while graphs run
    return {**defaults, **own, **seeds, "derive": check_derive(given.get("derive", defaults["derive"])), "plan": name}


def check_derive(derive: Any) -> bool | str:
    if not isinstance(derive, bool) and derive != "auto":
        raise TypeError(f"actzip.compile: derive={derive!r} (allowed: 'auto', True or False)")
    return derive


def state_of(name: str) -> str:
    """Returns the saved state for the name of a plan in options."""
    return _states[name]
