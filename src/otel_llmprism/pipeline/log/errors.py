# What can go wrong with the log, as its users tell it apart.


class LogStartError(OSError):
    """The log cannot be opened; the text says the mend."""


class LogFullError(Exception):
    """The bound in bytes is reached; nothing was written."""
