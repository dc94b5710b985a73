"""Events: what they mean and what is told with them, from the table in `model/events.py`."""

from tools.pages.text import code, facts, table

from perdure.model.events import EVENTS, FIELDS

OBSERVER = "An observer takes an `Event`, which has a name and fields: `App(observers=[observer])`."


def events_page() -> list[str]:
    lines = [
        "# Events",
        "",
        "What observers and the log are told, always after it is durable.",
        OBSERVER,
        "A field that does not apply is None for observers, or missing, and left out of the log.",
        "[Fields](#fields) says what each of them means.",
        "",
    ]
    for name, one in EVENTS.items():
        level: str = one.level
        if one.level_again is not None:
            level += f"; {one.level_again} for every attempt at a stage but the first"
        fields = ", ".join(code(field) for field in one.fields) or "none"
        lines += [f"## {name}", "", one.sentence, "", *facts({"level": level, "fields": fields})]
    rows = [(code(field), meaning) for field, meaning in FIELDS.items()]
    return [*lines, "## Fields", "", *table(("field", "meaning"), rows)]
