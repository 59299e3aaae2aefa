"""Secrets from files: whatever secret the variable `X` holds may stand in a file instead, which `X_FILE` names.

A variable is seen by whoever may inspect the container or the process; a file has an owner and a mode.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

SUFFIX = "_FILE"


class SecretFileError(Exception):
    """A secret's file is not usable; the message says why in one line, without the secret."""


class SecretFiles(PydanticBaseSettingsSource):
    """The source of all settings that are secrets and have a file named for them."""

    def __call__(self) -> dict[str, Any]:
        """By alias. Raises `SecretFileError`."""
        aliases = [field.alias for field in self.settings_cls.model_fields.values() if field.alias and is_secret(field)]
        named = [alias for alias in aliases if os.environ.get(alias + SUFFIX)]
        return {alias: secret(alias, os.environ) for alias in named}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Asked of sources that go field by field; this one does not."""
        raise NotImplementedError


class SettingsWithSecrets(BaseSettings):
    """Settings whose every `SecretStr` may come from a file."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there is no such file
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - secrets' files are named one by one
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What a caller gives, then the environment, then the files that it names."""
        return init_settings, env_settings, SecretFiles(settings_cls)


def is_secret(field: FieldInfo) -> bool:
    """Whether a setting may come from a file."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def secret(variable: str, environment: Mapping[str, str]) -> str | None:
    """The secret of a variable or of its file, without the line end that editors leave; None where there is neither.

    Raises:
        SecretFileError: both are there, or the file cannot be read or is empty.
    """
    value, path = environment.get(variable) or None, environment.get(variable + SUFFIX)
    if not path:
        return value
    if value is not None:
        raise SecretFileError(f"{variable} and {variable}{SUFFIX} are both set; one of them must go.")
    try:
        held = Path(path).read_text("utf-8").strip("\r\n")
    except OSError as error:
        raise SecretFileError(f"{variable}{SUFFIX} names {path}, which cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{variable}{SUFFIX} names {path}, which is no text.") from None
    if not held:
        raise SecretFileError(f"{variable}{SUFFIX} names {path}, which is empty.")
    return held
