"""What ``python -m trainauto list archs`` prints: networks by architecture, with sizes, scales, crops and weights."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from trainauto.archs import ARCHS, is_discriminator
from trainauto.commands.network_facts import NetworkFacts, facts_of
from trainauto.core.words import visible
from trainauto.tasks.sr.spandrel_archs.library import INSTALL

NETWORKS_WIDEST = 80
"""Columns of the table; narrower terminals are followed where text allows."""
OWN = "trainauto.tasks.sr."
_COLUMNS = "  {:<18}{:>9}  {:<9}{}"


def networks_json() -> str:
    """Return all networks and what is known of them, for machines."""
    return json.dumps(list(map(network_dict, ARCHS)), indent=2)


def network_dict(name: str) -> dict[str, Any]:
    """Return what is known of a network, plain."""
    facts = facts_of(name)
    more = {"discriminator": is_discriminator(ARCHS.get(name)), "aliases": ARCHS.aliases(name)}
    return {**asdict(facts), **more}


def network_lines(name: str, width: int) -> Iterator[str]:
    """Yield what the table says of a network, for where it stands alone."""
    facts, judges = facts_of(name), is_discriminator(ARCHS.get(name))
    size = f"{_count(facts.parameters)} weights" if facts.parameters is not None else "weights: not known"
    reach = f" at scale {facts.default_scale}; scales: {scales_in_words(facts.scales)}; crops: {crops_in_words(facts)}"
    yield from wrap(size if judges else size + reach, width)
    if also := ARCHS.aliases(name):
        yield from wrap(visible(f"also called: {', '.join(also)}"), width)
    if facts.published:
        yield from wrap(f"published: {facts.published}", width)


def networks_table(width: int) -> str:
    """Return all networks, those of an architecture together, for a terminal of so many columns."""
    groups: dict[str, list[NetworkFacts]] = {}
    for facts in map(facts_of, ARCHS):
        groups.setdefault(_group_of(facts), []).append(facts)
    lines: list[str] = []
    for heading in (_OURS, _LIBRARY, _PLUGINS, _JUDGES):
        if found := groups.get(heading):
            lines += [*wrap(heading, width), "", *_blocks(found, width)]
    return "\n".join([*lines, *(line for text in _NOTES for line in wrap(text, width))])


_OURS = "trainauto's own networks:"
_LIBRARY = f"networks taken from spandrel ({INSTALL}):"
_PLUGINS = "networks of plugins:"
_JUDGES = "discriminators, named in network_d:"
_NOTES = (
    "weights: trainable numbers at scale 4 (at the smallest scale of those that do not enlarge by 4), in thousands (K) "
    "or millions (M); below a network, where such weights are published: a project on GitHub, or a site.",
    "crops: sides in pixels that training crops should have; whole images of any size are run.",
    "named in: network_g, network_d; arguments: list archs NAME; memory: docs/networks.md; networks of other projects "
    "that are not here: list archs --missing",
)


def _group_of(facts: NetworkFacts) -> str:
    constructor = ARCHS.get(facts.name)
    if is_discriminator(constructor):
        return _JUDGES
    if facts.needs_spandrel:
        return _LIBRARY
    return _OURS if constructor.__module__.startswith(OWN) else _PLUGINS


def _blocks(networks: Sequence[NetworkFacts], width: int) -> Iterator[str]:
    """Yield the lines of some networks, architecture by architecture."""
    judges = is_discriminator(ARCHS.get(networks[0].name))
    yield (_COLUMNS.format("network", "weights", "" if judges else "scales", "" if judges else "crops")).rstrip()
    for title in sorted({facts.title for facts in networks}, key=str.lower):
        sizes = sorted((facts for facts in networks if facts.title == title), key=lambda facts: facts.is_preset)
        summary = sizes[0].summary.replace("`", "").replace("**", "")
        yield from wrap(visible(summary if summary.startswith(title) else f"{title}: {summary}"), width)
        for facts in sizes:
            scales, crops = ("", "") if judges else (scales_in_words(facts.scales), crops_in_words(facts))
            also = ", ".join(ARCHS.aliases(facts.name))
            row = _COLUMNS.format(visible(facts.name), _count(facts.parameters), scales, crops).rstrip()
            yield visible(f"{row}; also {also}" if also and len(row) + len(also) + 7 <= width else row)
        if sizes[0].published:
            yield from wrap(f"published: {sizes[0].published}", width, initial_indent="  ", subsequent_indent="    ")
    yield ""


def _count(parameters: int | None) -> str:
    if parameters is None:
        return ""
    if parameters < 1000:
        return f"{parameters}"
    return f"{parameters / 1e6:.2f} M" if parameters >= 1e6 else f"{parameters / 1e3:.0f} K"


def scales_in_words(scales: Sequence[int]) -> str:
    """Return scales with runs of neighbours drawn together: ``1-4, 8``; ``any`` where there are none."""
    runs: list[list[int]] = []
    for scale in scales:
        if runs and scale == runs[-1][-1] + 1:
            runs[-1].append(scale)
        else:
            runs.append([scale])
    return ", ".join(f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs) or "any"


def crops_in_words(facts: NetworkFacts) -> str:
    """Return which sides training crops should have: ``any``, ``multiples of 8 from 16``."""
    words = [f"multiples of {facts.multiple}"] if facts.multiple > 1 else []
    words += [f"from {facts.minimum}"] if facts.minimum > facts.multiple else []
    return " ".join(words) or "any"
