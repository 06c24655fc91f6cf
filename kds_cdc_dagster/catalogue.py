"""Read the catalogue file: the packaged one, or the one that KDS_CDC_CATALOGUE names."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import ValidationError

from kds_cdc_dagster.core.catalogue import Catalogue
from kds_cdc_dagster.errors import CatalogueError

PACKAGED = "packaged catalogue.yaml"


def packaged_text() -> str:
    """Text of the catalogue that ships with the package."""
    return files("kds_cdc_dagster").joinpath("catalogue.yaml").read_text("utf-8")


@lru_cache(maxsize=8)
def load_catalogue(path: Path | None = None) -> Catalogue:
    """The catalogue at `path`, or the packaged one. Raises CatalogueError naming file, entry and rule."""
    where = str(path) if path else PACKAGED
    try:
        text = path.read_text("utf-8") if path else packaged_text()
    except OSError as error:
        raise CatalogueError(
            "the catalogue file cannot be read", file=where, cause=error.strerror, hint="check KDS_CDC_CATALOGUE"
        ) from error
    return parse_catalogue(text, where)


def parse_catalogue(text: str, where: str = PACKAGED) -> Catalogue:
    """Parse and validate a catalogue. Raises CatalogueError naming every wrong entry."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CatalogueError("the catalogue is not valid YAML", file=where, cause=str(error)) from error
    try:
        return Catalogue.model_validate(document)
    except ValidationError as error:
        wrong = "; ".join(f"{_path(item['loc'])}: {item['msg']}" for item in error.errors())
        raise CatalogueError("the catalogue is wrong", file=where, entries=wrong) from error


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "catalogue"
