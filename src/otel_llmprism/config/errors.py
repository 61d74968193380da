# The one error of everything the user configured: a sentence that says where, what and the mend.


class ConfigError(ValueError):
    """Bad use, found before anything runs; its text is fit for one line on stderr."""
