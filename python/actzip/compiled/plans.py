"""Plans that eager sessions have made, for graphs: a graph cannot change its bits, but it can be made with them."""

from __future__ import annotations

import hashlib
from typing import Any

from ..options import check

#: What the core has saved of sessions with plans, by a name that goes into options. Graphs may need it at any time.
_states: dict[str, str] = {}


def planned_options(session: Any, given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The options of graphs that keep what a session has planned. What is ``given`` besides may be little."""
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
        own["adapt"] = "layer"  # a budget plans as that does; its bytes are nobody's to count in graphs
    return {**defaults, **own, **seeds, "derive": check_derive(given.get("derive", defaults["derive"])), "plan": name}


def check_derive(derive: Any) -> bool | str:
    if not isinstance(derive, bool) and derive != "auto":
        raise TypeError(f"actzip.compile: derive={derive!r} (allowed: 'auto', True or False)")
    return derive


def state_of(name: str) -> str:
    """Of a plan's name in options."""
    return _states[name]
