"""What all parts of the catalogue share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""Lower snake case, at most 63 characters: the same identifier on every warehouse."""


class Model(BaseModel):
    """Fixed once read; a key that nobody knows is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
