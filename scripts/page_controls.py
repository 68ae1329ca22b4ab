"""Uses the controls of a page as a person does, by real keys and mouse events, and says which do nothing."""

from collections.abc import Iterator

from devtools import Tab


def control_faults(tab: Tab) -> Iterator[str]:
    """Try each kind of control that the page has once."""
    for selector, use in (
        (".plot canvas", label_faults),
        (".plot canvas", chart_faults),
        ("button.series", lambda tab: pressed_faults(tab, "button.series", "a button of a series")),
        (".filters:not([hidden]) .filter", lambda tab: pressed_faults(tab, ".filter", "a filter of events")),
        ("details.values", table_faults),
        (".picture-set input:enabled", slider_faults),
        (".crop", crop_faults),
        (".crop", viewer_faults),
        (".events button", event_faults),
    ):
        if tab.value(f"document.querySelector({selector!r}) !== null"):
            yield from use(tab)
    yield from tab_key_faults(tab)


def label_faults(tab: Tab) -> Iterator[str]:
    """Read the labels of all axes, and some of small values: none but 0 may read 0, no two the same."""
    yield from tab.value(MISREAD_LABELS)
    for script, wanted in SMALL_LABELS.items():
        if (found := tab.value(f"String({script})")) != wanted:
            yield f"{script} is {found}, not {wanted}"


MISREAD_LABELS = """[...view.charts].filter(({plot}) => plot).flatMap(({block, plot}) => {
  const {_splits: ticks, _values: texts} = plot.axes[1];
  const labelled = texts.filter(Boolean);
  const hidden = ticks.filter((tick, at) => tick && texts[at] && !/[1-9]/.test(texts[at]));
  return [...hidden.map((tick) => `the axis of '${block.title}' reads 0 at ${tick}`),
    ...(new Set(labelled).size < labelled.length ? [`labels of '${block.title}' are the same: ${labelled}`] : [])];
})"""
SMALL_LABELS = {
    "axisLabels([0, 2e-5, 4e-5, 6e-5], 'number')": "0,2e-5,4e-5,6e-5",
    "axisLabels([0, 5e-4, 1e-3, 1.5e-3], 'number')": "0,5e-4,1e-3,1.5e-3",
    "axisLabels([1e-3, 1.00000002e-3], 'number')": "1e-3,1.00000002e-3",
    "axisLabels([0.01, 0.0125, 0.015], 'number')": "0.0100,0.0125,0.0150",
    "logTicks(6e-5 / 1.15, 3.45e-3).map((tick) => formatValue(tick, 'number'))": "6e-5,1e-4,3e-4,0.001,0.003",
    "logTicks(2e-4 / 1.15, 2e-4 * 1.15).map((tick) => formatValue(tick, 'number'))": "1.8e-4,2e-4,2.2e-4",
}


def chart_faults(tab: Tab) -> Iterator[str]:
    """Move the cursor by keys, zoom by keys and by dragging, go back by Escape and by a double click."""
    focus(tab, ".plot:has(canvas)")
    tab.press("End")
    last = tab.value(READOUT)
    tab.press("ArrowLeft")
    before = tab.value(READOUT)
    if not last or before == last:
        yield "ArrowLeft in a chart does not move its cursor"
    tab.press("+")
    if not tab.value(IS_ZOOMED):
        yield "'+' in a chart does not zoom"
    if tab.value(READOUT) != before:
        yield "'+' in a chart moves its cursor"
    tab.press("Escape")
    if tab.value(IS_ZOOMED):
        yield "Escape in a zoomed chart does not show the whole run"
    tab.value(SETTLED)  # a page that took End for itself is still scrolling
    tab.value(f"{PLOT}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    tab.value(SETTLED)
    box = tab.value(f"{PLOT}.getBoundingClientRect().toJSON()")
    y = box["top"] + box["height"] / 2
    drag(tab, box["left"] + box["width"] * 0.3, box["left"] + box["width"] * 0.6, y)
    if not tab.value(IS_ZOOMED):
        yield "dragging in a chart does not zoom"
    for count in (1, 2):
        mouse(tab, "mousePressed", box["left"] + box["width"] / 2, y, count)
        mouse(tab, "mouseReleased", box["left"] + box["width"] / 2, y, count)
    if tab.value(IS_ZOOMED):
        yield "a double click does not show the whole run"


SETTLED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))"
PLOT = "document.querySelector('.plot .u-over')"
READOUT = "document.querySelector('.chart:has(canvas) .readout').textContent"
IS_ZOOMED = "!document.querySelector('.chart:has(canvas) .reset').classList.contains('away')"


def drag(tab: Tab, start: float, end: float, y: float) -> None:
    """Press the button at one place, release it at another."""
    mouse(tab, "mouseMoved", start, y)
    mouse(tab, "mousePressed", start, y, 1)
    for part in (0.3, 0.7, 1.0):
        mouse(tab, "mouseMoved", start + (end - start) * part, y, 1)
    mouse(tab, "mouseReleased", end, y, 1)


def mouse(tab: Tab, kind: str, x: float, y: float, clicks: int = 0) -> None:
    """One event of the mouse at a place of the window."""
    tab.call(
        "Input.dispatchMouseEvent",
        type=kind,
        x=x,
        y=y,
        button="left" if clicks else "none",
        buttons=int(kind != "mouseReleased" and clicks > 0),
        clickCount=clicks,
    )


def pressed_faults(tab: Tab, selector: str, name: str) -> Iterator[str]:
    """Switch a button off and on again with the space bar."""
    focus(tab, selector)
    state = f"document.querySelector({selector!r}).getAttribute('aria-pressed')"
    before = tab.value(state)
    tab.press("Space")
    if tab.value(state) == before:
        yield f"the space bar does nothing on {name}"
    tab.press("Space")


def table_faults(tab: Tab) -> Iterator[str]:
    """Open the table of a chart."""
    focus(tab, "details.values summary")
    tab.press("Enter")
    tab.value("new Promise((done) => setTimeout(done, 50))")  # 'toggle' is an event of its own
    if not tab.value("document.querySelector('details.values').textContent.length > 30"):
        yield "Enter does not open the table of a chart"


def slider_faults(tab: Tab) -> Iterator[str]:
    """Go one picture back."""
    focus(tab, ".picture-set input")
    place = "document.querySelector('.picture-set output').textContent"
    before = tab.value(place)
    tab.press("ArrowLeft")
    if tab.value(place) == before:
        yield "ArrowLeft on a slider of pictures does not show another picture"


def crop_faults(tab: Tab) -> Iterator[str]:
    """Measure all pictures: a pixel of theirs is 1, 2, 3 ... of the page."""
    for alt in tab.value(BROKEN_PIXELS):
        yield f"pixels of '{alt[:80]}' are not shown 1, 2, 3 ... times their size"


BROKEN_PIXELS = """[...document.querySelectorAll(".crop img, dialog[open] img")].filter((image) => {
  const {width, height} = image.getBoundingClientRect();
  const times = [width / image.naturalWidth, height / image.naturalHeight];
  return !times.every((one) => one > 0.999 && Math.abs(one - Math.round(one)) < 0.001) || times[0] - times[1] > 0.001;
}).map(({alt}) => alt)"""


def viewer_faults(tab: Tab) -> Iterator[str]:
    """Enlarge a picture, go to another one, move the divider by keys and by the mouse, close by Escape."""
    open_viewer(tab)
    if not tab.value(IS_OPEN):
        yield "Enter on a picture does not enlarge it"
        return
    yield from crop_faults(tab)
    before = tab.value(VIEWED)
    tab.press("ArrowRight")
    if tab.value("viewer.rows.length > 1") and tab.value(VIEWED) == before:
        yield "ArrowRight in the enlarged view does not go to another picture"
    tab.press("ArrowLeft")
    if tab.value(VIEWED) != before:
        yield "ArrowLeft in the enlarged view does not go back"
    focus(tab, ".divider")
    for key, share in (("Home", "0%"), ("ArrowRight", "1%"), ("End", "100%")):
        tab.press(key)
        if tab.value(DIVIDED) != share or tab.value(VIEWED) != before:
            yield f"{key} on the divider does not move it to {share}"
    box = tab.value("document.querySelector('.wipe').getBoundingClientRect().toJSON()")
    drag(tab, box["right"] - 1, box["left"] + box["width"] * 0.25, box["top"] + 40)
    if tab.value(DIVIDED) not in ("24%", "25%", "26%"):
        yield f"the divider dragged to 25 % stands at {tab.value(DIVIDED)}"
    tab.press("Escape")
    if tab.value(IS_OPEN) or not tab.value("document.activeElement.matches('.crop')"):
        yield "Escape does not close the enlarged view and give the focus back to its picture"


def open_viewer(tab: Tab) -> None:
    """Enlarge the first picture by the keyboard."""
    focus(tab, ".crop")
    tab.press("Enter")
    tab.value(SETTLED)


IS_OPEN = "document.querySelector('dialog[open]') !== null"
VIEWED = "document.querySelector('.viewer h2').textContent + viewer.at"
DIVIDED = "document.querySelector('.wipe').style.getPropertyValue('--at')"


def event_faults(tab: Tab) -> Iterator[str]:
    """Go to the step of an event."""
    focus(tab, ".events li:not([hidden]) button")
    tab.press("Enter")
    if not tab.value("document.getElementById('said').textContent"):
        yield "Enter on an event does not show its step"


def tab_key_faults(tab: Tab) -> Iterator[str]:
    """Go through everything that can have the focus, and look for a trap or for what is left out."""
    wanted = tab.value(FOCUSABLE)
    tab.value("(document.activeElement.blur(), window.reached = new Set())")
    for _ in range(min(wanted, 400) + 5):
        tab.press("Tab")
        tab.value("(reached.add(document.activeElement), 0)")
    reached = tab.value("[...reached].filter((one) => one !== document.body).length")
    if reached < min(wanted, 400):
        yield f"the Tab key reaches {reached} of {wanted} controls; does one of them hold the focus?"


FOCUSABLE = """[...document.querySelectorAll("a[href], button, input:enabled, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility({visibilityProperty: true})).length"""


def focus(tab: Tab, selector: str) -> None:
    """Give an element the focus, as the Tab key would."""
    tab.value(f"document.querySelector({selector!r}).focus()")
