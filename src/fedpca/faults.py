"""Faults that the user can mend: shown as one message, without a trace."""


class UserError(ValueError):
    """The message names the thing, what was required, what came, and the remedy."""


class SettingsError(UserError):
    """Settings that cannot be used."""


class DataError(UserError):
    """Data that cannot be used."""


class RunError(UserError):
    """A run folder that cannot be written, continued or read."""
