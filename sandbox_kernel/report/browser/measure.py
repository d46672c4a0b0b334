"""Measures what frames can do in the user's browser: opens listeners and a page, and makes lines of what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.report.browser.attempts import ASIDE, ATTEMPTS
from sandbox_kernel.report.browser.listeners import BrowserListeners

AREA = "page"
MECHANISM = "frame: sandbox, policy, loader"
_NO_BROWSER = "no browser opened the page on this machine, or it did not finish"
_AGENT = re.compile(r"(Firefox|Edg|Chrome|Version)/(\d{1,4})")


def measure_page(show: Callable[[str], None], timeout_s: float = 120.0) -> tuple[Measurement, ...]:
    """Return the lines for the page.

    Args:
        show: opens an address in the user's browser, or tells the user to.
        timeout_s: how long to wait for the browser.

    """
    with BrowserListeners() as listeners:
        show(listeners.address)
        listeners.wait(timeout_s)
        return page_lines(list(listeners.hits), listeners.answer)


def page_lines(hits: Iterable[str], answer: Mapping[str, object] | None) -> tuple[Measurement, ...]:
    """Return a line for each kind of attempt, of what reached the listeners and what the page said."""
    if answer is None:
        return tuple(_line(name, None, _NO_BROWSER) for name in ATTEMPTS)
    reached = {*hits, *(_hit(said) for said in _texts(answer.get("read")))}
    begun = set(_texts(answer.get("began")))
    browser = _AGENT.search(str(answer.get("agent", "")))
    where = f" in {browser[1].replace('Edg', 'Edge').replace('Version', 'Safari')} {browser[2]}" if browser else ""
    return tuple(_judged(name, list(attempts), reached, begun, where) for name, attempts in ATTEMPTS.items())


def _judged(name: str, attempts: list[str], reached: set[str], begun: set[str], where: str) -> Measurement:
    signs = {attempt: {f"frame/{attempt.replace(' ', '-')}"} for attempt in attempts}
    control = {f"control/{attempts[0].replace(' ', '-')}"}
    if name == ASIDE:
        signs, control = {"TCP": {"frame/TCP"}, "UDP": {"frame/UDP"}}, {"control/TCP", "control/UDP"}
    through = [attempt for attempt, found in signs.items() if found & reached]
    if through:
        return _line(name, False, f"{', '.join(through)} got through{where}")
    if not control & reached:
        return _line(name, None, f"not even {attempts[0]} outside of a frame was noticed{where}")
    missing = [attempt for attempt in attempts if attempt not in begun]
    if missing:
        return _line(name, None, f"{', '.join(missing)} did not begin{where}")
    return _line(name, True, f"{len(attempts)} attempts, none got through{where}; {attempts[0]} without the frame did")


def _hit(said: str) -> str:
    where, _, name = said.partition(" ")
    return f"{where}/{name.replace(' ', '-')}"


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _line(name: str, enforced: bool | None, evidence: str) -> Measurement:
    return Measurement(area=AREA, name=name, enforced=enforced, mechanism=MECHANISM, evidence=evidence)
