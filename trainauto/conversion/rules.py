"""Keys that are answered by a table: which rule a key falls under, and what the rule does."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from trainauto.conversion.answers import Kept, Left, Moved, Nothing, Rule
from trainauto.conversion.draft import Draft
from trainauto.conversion.known import near_word
from trainauto.options.lookup import fields_of, section_at, sections
from trainauto.options.schema import Options
from trainauto.options.source_locations import KeyPath, dotted

Rules = Mapping[str, Rule]
"""Rule by key, dotted. ``*`` is any text of a step, as in ``datasets.val*.name``; a last one is all that is below."""


def answer_by_rules(draft: Draft, rules: Rules) -> None:
    """Answer every key that has no answer yet: by its rule, else as unknown."""
    for path in draft.unanswered():
        if draft.is_answered(path):
            continue  # a rule for another key has answered this one with it
        rule = rule_of(path, rules)
        if draft.get(*path) in (None, {}) and (rule is None or draft.get(*path) == {}) and _is_section(path, rules):
            draft.need_not(path, path, "the section is empty")
        elif rule is None:
            _unknown(draft, path, rules)
        else:
            _apply(draft, path, rule)


def rule_of(path: KeyPath, rules: Rules) -> Rule | None:
    """Return the rule of a key: its own, or the first whose pattern fits."""
    return rules.get(dotted(path)) or next((rule for pattern, rule in rules.items() if _fits(path, pattern)), None)


def _is_section(path: KeyPath, rules: Rules) -> bool:
    return any(_fits(path, ".".join(pattern.split(".")[: len(path)])) for pattern in rules)


def _fits(path: KeyPath, pattern: str) -> bool:
    """Return whether a pattern stands for a key: step by step, and a last ``*`` for all that is below."""
    steps = pattern.split(".")
    if steps[-1] == "*" and len(path) >= len(steps):
        path = path[: len(steps)]
    return len(path) == len(steps) and all(fnmatchcase(str(key), step) for key, step in zip(path, steps, strict=True))


def key_path(key: str) -> KeyPath:
    """Return a dotted key as a path."""
    return tuple(key.split("."))


def _apply(draft: Draft, path: KeyPath, rule: Rule) -> None:
    value = draft.get(*path)
    if isinstance(rule, Left):
        draft.leave(path, rule.why, rule.near)
        return
    to = path if isinstance(rule, Kept) else _target(rule, path)
    if value is None:
        draft.need_not(path, to, "null is the default here")
    elif isinstance(rule, Kept):
        draft.keep(path)
    else:
        new = rule.change(value, draft) if rule.change is not None else value
        if isinstance(new, Left):
            draft.leave(path, new.why, new.near)
        elif isinstance(new, Nothing):
            draft.need_not(path, to, rule.unneeded)
        else:
            draft.write(to, new, [path], rule.why)


def _target(rule: Moved, path: KeyPath) -> KeyPath:
    """Return the key here; ``*`` in it stands for what stands there in theirs."""
    steps = key_path(rule.to)
    return tuple(path[number] if step == "*" else step for number, step in enumerate(steps))


def _unknown(draft: Draft, path: KeyPath, rules: Rules) -> None:
    why = f"unknown here and in {draft.project}'s templates"
    draft.unknown(path, why, _near_in_section(path, rules) or near_word(str(path[-1]), _all_keys(rules)))


def _near_in_section(path: KeyPath, rules: Rules) -> str:
    """Return the nearest key of the innermost section that is known; empty where none is near."""
    for length in range(len(path) - 1, -1, -1):
        section = path[:length]
        keys = set(fields_of(kind)) if (kind := section_at(Options, section)) is not None else set[str]()
        for pattern in rules:
            steps = pattern.split(".")
            if (
                len(steps) > length
                and "*" not in steps[length]
                and (not length or _fits(section, ".".join(steps[:length])))
            ):
                keys.add(steps[length])
        if keys:
            return near_word(str(path[length]), keys)
    return ""


def _all_keys(rules: Rules) -> set[str]:
    theirs = {pattern.rsplit(".", 1)[-1] for pattern in rules if not pattern.endswith("*")}
    return theirs | {field for _, section in sections(Options) for field in fields_of(section)}
