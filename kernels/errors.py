"""The one exception type for mistakes that a user can mend."""


class UserError(Exception):
    """A mistake of the user's: its text is one line that says what was wanted, what came, and what to do.

    Stages print it without a stack trace and exit with code 2.
    """
