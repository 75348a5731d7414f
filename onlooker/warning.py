"""What a user should read."""

__all__ = ["OnlookerWarning"]


class OnlookerWarning(UserWarning):
    """An answer that should not be trusted as it is; the same sentences are in the result's ``warnings``."""
