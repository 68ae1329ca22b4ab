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
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Roots = str | list[str]
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

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Component(BaseModel):
    """A component by its registered name, with the arguments of its constructor beside it."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: Annotated[str, StringConstraints(min_length=1)] = option(..., "Registered name, in any case.")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything beside ``type``."""
        return dict(self.model_extra or {})
