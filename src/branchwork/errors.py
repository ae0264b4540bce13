"""The one error that ends a command with a line for a person."""


class UserError(Exception):
    """Someone at the keyboard must act. The text is one line: what failed, where, what to do next.

    `exit_code` is that of the command line: 1 error, 2 usage, 3 model or provider, 4 refused, 5 limit.
    """

    exit_code = 1

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code
