"""What options are made of: how one is declared, sections, components, and types that several sections take."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints


def whole(value: Any) -> Any:
    """Return a float without a fraction as an int: BasicSR files write ``total_iter: !!float 5e5``."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Bounds come first, so that pydantic applies them to the int and shows them in the JSON Schema.
Whole = Annotated[int, BeforeValidator(whole)]
PositiveInt = Annotated[int, Field(ge=1), BeforeValidator(whole)]
NonNegativeInt = Annotated[int, Field(ge=0), BeforeValidator(whole)]
Samples = Annotated[int, Field(ge=1, le=2**16), BeforeValidator(whole)]
"""Samples of a step, or parts of one; a larger value is taken for a mistake."""
Side = Annotated[int, Field(ge=1, le=2**16), BeforeValidator(whole)]
"""Pixels of a side."""
Threads = Annotated[int, Field(ge=1, le=1024), BeforeValidator(whole)]
Processes = Annotated[int, Field(ge=0, le=1024), BeforeValidator(whole)]
Lookahead = Annotated[int, Field(ge=1, le=2**16), BeforeValidator(whole)]
Tokens = Annotated[int, Field(ge=2, le=2**30)]
"""Of a text, or of a batch of texts."""
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


_LONGEST_PATH_BYTES, _LONGEST_PART_BYTES = 4095, 255
"""That Linux takes; other systems take no more."""


def _of_a_path(text: str) -> str:
    """Refuse what no disk takes as a path, or takes and no list of files and no log can hold."""
    if any(character in text for character in "\n\r\0"):
        raise ValueError("a path has no line break and no zero character; write it on one line")
    longest = max(len(part.encode()) for part in text.split("/"))
    for size, most, what in (
        (len(text.encode()), _LONGEST_PATH_BYTES, "path"),
        (longest, _LONGEST_PART_BYTES, "name in a path"),
    ):
        if size > most:
            raise ValueError(f"a {what} of {size} bytes is longer than disks take: {most} at most")
    return text


PathText = Annotated[str, AfterValidator(_of_a_path)]
"""A path, or what may be one."""
Roots = PathText | list[PathText]
_LONGEST_NAME_BYTES = 200


def _of_a_folder(name: str) -> str:
    """Refuse a name that is longer than the names of files and folders made of it may be."""
    size = len(name.encode())
    if size > _LONGEST_NAME_BYTES:
        raise ValueError(f"a name of {size} bytes is too long for a folder: {_LONGEST_NAME_BYTES} at most")
    return name


FolderName = Annotated[str, StringConstraints(pattern=r"^\w[\w.\- ]*$"), AfterValidator(_of_a_folder)]
"""A name that is also that of a folder, on every file system."""


def option(default: Any, description: str, *, unit: str = "", reason: str = "") -> Any:
    """Declare an option: what it is, its unit, and the reason for its default. ``...`` marks a required one."""
    extra: dict[str, Any] = {name: text for name, text in (("unit", unit), ("reason", reason)) if text}
    return Field(default, description=description, json_schema_extra=extra)


class Section(BaseModel):
    """Base of every section: unknown keys are refused, numbers are not taken from strings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Component(BaseModel):
    """A component by its registered name, with the arguments of its constructor beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: Annotated[str, StringConstraints(min_length=1)] = option(..., "Registered name, in any case.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything beside ``type``."""
        return dict(self.model_extra or {})
